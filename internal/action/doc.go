// SPDX-License-Identifier: Apache-2.0

// Package action is what an administrator can do, as functions: generate a peer command, peer, unpeer, look at the
// status. liqoctl calls them, and so can other programs.
//
// An action speaks to clusters through API objects only, never into a pod. It checks before it changes anything
// (preflight.go), applies what is wanted, and then watches what the controllers make of it (wait.go). What happens meanwhile
// goes to a [Progress]; how that is shown is none of its business, and neither are flags and terminals.
//
// TestWithAPIServer proves the actions against an API server that is cut off now and then.
package action

// Progress receives what happens while an action runs. Texts are whole sentences without a full stop.
type Progress interface {
	// Start says what is being waited for, until the next call.
	Start(text string)
	// Done says what was achieved.
	Done(text string)
	// Info and Warn tell something by the way.
	Info(text string)
	Warn(text string)
	// Stop ends the wait of Start without a word.
	Stop()
}
