// SPDX-License-Identifier: Apache-2.0

package role

import (
	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// The documentation names flags that have no effect in this program. A role accepts them and logs a line for each: refusing them would keep a pod
// from starting only because of its arguments.

// The reasons why a flag has no effect.
const (
	NoteClasses     = "each virtual storage class names its real classes in its parameters"
	NoteNodeFailure = "the controller for failed nodes comes with a later version"
	NoteOffers      = "accepting offers by hand comes with a later version; until then every offer is accepted automatically"
	NoteResync      = "watches report every change, so nothing is read again"
	NoteNoCache     = "this process caches nothing, so nothing is read again"
	NoteIPAM        = "there is no IPAM service, and none will come: each process translates addresses itself"
	NoteAWS         = "there are no identities of AWS IAM, and none will come: peers authenticate with keys and tokens of their own"
	NoteProfiling   = "this program serves no profiles"
	NoteProbes      = "the probes of the tunnels have a fixed pace"
	NoteElection    = "gateways do not elect a leader: each one serves its own lane"
	NoteVXLAN       = "the overlay chooses this number itself"
	NoteRunAs       = "the role is the first argument: `liqo gateway`, `liqo route`, `liqo controller-manager`"
	NoteManager     = "the networks are flags of `liqo controller-manager`, without the prefix manager"
	NoteGatewayOnly = "it is a flag of `liqo gateway`"
)

// withoutEffect is the annotation of a flag that has no effect; its content is the reason.
const withoutEffect = "without-effect"

// Ignore accepts flags that have a value, and have no effect for the reason of the note.
func Ignore(flags *pflag.FlagSet, note string, names ...string) {
	for _, name := range names {
		flags.String(name, "", note)
		hide(flags.Lookup(name), note)
	}
}

// IgnoreSwitch accepts Boolean flags, which need no value, and have no effect for the reason of the note.
func IgnoreSwitch(flags *pflag.FlagSet, note string, names ...string) {
	for _, name := range names {
		flags.Bool(name, false, note)
		hide(flags.Lookup(name), note)
	}
}

func hide(flag *pflag.Flag, note string) {
	flag.Hidden, flag.Annotations = true, map[string][]string{withoutEffect: {note}}
}

// reportIgnored logs each given flag that has no effect.
func reportIgnored(flags *pflag.FlagSet, log logr.Logger) {
	flags.Visit(func(flag *pflag.Flag) {
		if note := flag.Annotations[withoutEffect]; len(note) > 0 {
			log.Info("flag has no effect", "flag", "--"+flag.Name, "reason", note[0])
		}
	})
}
