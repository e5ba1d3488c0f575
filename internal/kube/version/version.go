// SPDX-License-Identifier: Apache-2.0

// Package version says which release this is and what it can speak with another cluster: a range of protocol
// versions and a list of capabilities. Clusters of different releases work together while their ranges meet.
//
// It must not know how the other cluster is asked; it compares what it is told. Its proof is version_test.go.
package version

import (
	"fmt"
	"slices"
)

// Version is the release. The build sets it: -ldflags "-X liqo.io/liqo/internal/kube/version.Version=v1.2.3".
var Version = "dev"

// MinProtocol and MaxProtocol bound the versions of the protocol between two clusters that we speak.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

// Range is a range of protocol versions, both ends included.
type Range struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Protocol is our range.
func Protocol() Range { return Range{Min: MinProtocol, Max: MaxProtocol} }

// Capabilities are the parts of the protocol that a cluster may or may not have, beyond its version. Names
// are never reused for something else.
func Capabilities() []string { return []string{"identity-key", "resource-slice"} }

// MismatchError says that two clusters have no protocol version in common.
type MismatchError struct {
	Ours, Theirs  Range
	RemoteVersion string
}

func (e *MismatchError) Error() string {
	older, version := "the remote cluster", e.RemoteVersion
	if version == "" {
		version = "an unknown version"
	}
	if e.Theirs.Min > e.Ours.Max {
		older = "this cluster"
	}
	return fmt.Sprintf("the remote cluster runs Liqo %s and speaks protocol %s, this cluster runs %s and speaks %s: upgrade Liqo in %s",
		version, e.Theirs, Version, e.Ours, older)
}

func (r Range) String() string {
	if r.Min == r.Max {
		return fmt.Sprintf("version %d", r.Min)
	}
	return fmt.Sprintf("versions %d to %d", r.Min, r.Max)
}

// Compatible returns the highest protocol version that both sides speak, or a [MismatchError]. A remote range
// of zeros comes from a cluster that does not say, which is the first version.
func Compatible(remote Range, remoteVersion string) (protocol int, err error) {
	if remote == (Range{}) {
		remote = Range{Min: 1, Max: 1}
	}
	protocol = min(MaxProtocol, remote.Max)
	if protocol < max(MinProtocol, remote.Min) {
		return 0, &MismatchError{Ours: Protocol(), Theirs: remote, RemoteVersion: remoteVersion}
	}
	return protocol, nil
}

// Common returns which of the remote cluster's capabilities we have too, in our order.
func Common(remote []string) []string {
	return slices.DeleteFunc(Capabilities(), func(one string) bool { return !slices.Contains(remote, one) })
}
