// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/pflag"

// The documentation names flags that have no effect in this program. A role accepts them and prints a note: refusing them would keep a pod
// from starting only because of its arguments.

// The reasons why a flag has no effect. The program prints them after "Flag --NAME has been deprecated, ".
const (
	noteClasses     = "each virtual storage class names its real classes in its parameters; the flag has no effect"
	noteNodeFailure = "the controller for failed nodes comes with a later version; the flag has no effect yet"
	noteOffers      = "accepting offers by hand comes with a later version; until then every offer is accepted automatically"
	noteResync      = "watches report every change, so nothing is read again; the flag has no effect"
	noteNoCache     = "this process caches nothing, so nothing is read again; the flag has no effect"
	noteIPAM        = "there is no IPAM service, and none will come: each process translates addresses itself; the flag has no effect"
	noteAWS         = "there are no identities of AWS IAM, and none will come: peers authenticate with keys and tokens of their own; the flag has no effect"
	noteProfiling   = "this program serves no profiles; the flag has no effect"
	noteProbes      = "the probes of the tunnels have a fixed pace; the flag has no effect"
	noteElection    = "gateways do not elect a leader: each one serves its own lane; the flag has no effect"
	noteVXLAN       = "the overlay chooses this number itself; the flag has no effect"
	noteRunAs       = "the role is the first argument: `liqo gateway`, `liqo route`, `liqo controller-manager`; the flag has no effect"
	noteManager     = "the networks are flags of `liqo controller-manager`, without the prefix manager; the flag has no effect here"
	noteGatewayOnly = "it is a flag of `liqo gateway`; it has no effect here"
)

// ignore accepts flags that have a value, and prints the note if one is set.
func ignore(flags *pflag.FlagSet, note string, names ...string) {
	for _, name := range names {
		flags.String(name, "", "")
		_ = flags.MarkDeprecated(name, note) // the flag exists
	}
}

// ignoreSwitch accepts Boolean flags, which need no value, and prints the note if one is set.
func ignoreSwitch(flags *pflag.FlagSet, note string, names ...string) {
	for _, name := range names {
		flags.Bool(name, false, "")
		_ = flags.MarkDeprecated(name, note) // the flag exists
	}
}
