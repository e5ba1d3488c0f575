// SPDX-License-Identifier: Apache-2.0

// Package action is what an administrator does, a folder for each: generate a peer command or an invitation, peer, unpeer, accept
// networks and labels, offload, move, rotate, status, install, purge, networktest. liqoctl calls them, and other programs can do
// the same. What several of them need lies in folders that are no actions: await, preflight, deletion, foreign, installed, tokens,
// claims, pair, inuse. An action imports those only, and of other actions accept and purge, which are steps of peer, offload, status
// and of install.
//
// An action uses API objects only; it never calls into a pod. It checks before it changes anything, applies the desired state,
// and then watches the conditions that the controllers report. It reports its own steps to a [Progress]. It must not know flags,
// terminals, or how a Progress shows the steps.
//
// TestWithAPIServer of package apiserver proves the actions against an API server whose connection breaks.
package action

// Progress receives the steps of a running action. Texts are whole sentences without a full stop.
type Progress interface {
	// Start names the step that begins; it lasts until the next call.
	Start(text string)
	// Done reports a completed step.
	Done(text string)
	// Info and Warn report a message and leave the current step running.
	Info(text string)
	Warn(text string)
	// Stop ends the current step without a message.
	Stop()
}
