// SPDX-License-Identifier: Apache-2.0

// Package action holds the actions of an administrator as functions: generate a peer command, peer, unpeer, offload a
// namespace, read the status. liqoctl calls them, and other programs can do the same.
//
// An action uses API objects only; it never calls into a pod. It checks before it changes anything (preflight.go),
// applies the desired state, and then watches the conditions that the controllers report (wait.go). It reports its own
// steps to a [Progress]. It must not know flags, terminals, or how a Progress shows the steps.
//
// TestWithAPIServer proves the actions against an API server whose connection breaks.
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
