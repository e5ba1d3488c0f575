// SPDX-License-Identifier: Apache-2.0

// Package version holds the release of this program and what it supports in the protocol with another cluster: a range
// of protocol versions and a list of capabilities. Clusters of different releases work together if their ranges overlap.
//
// It must not know how the range of the other cluster is obtained; it only compares. version_test.go proves it.
package version

import "fmt"

// Version is the release. The build sets it: -ldflags "-X liqo.io/liqo/internal/kube/version.Version=v1.2.3".
var Version = "dev"

// MinProtocol and MaxProtocol bound the supported versions of the protocol between two clusters.
const (
	MinProtocol = 2
	MaxProtocol = 2
)

// Range is a range of protocol versions, both ends included.
type Range struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Protocol returns the range that this release supports.
func Protocol() Range { return Range{Min: MinProtocol, Max: MaxProtocol} }

// Capabilities returns the optional parts of the protocol that this release supports. A name is never reused for
// another capability.
func Capabilities() []string { return []string{"identity-key", "resource-slice"} }

// MismatchError is the error of two clusters that have no protocol version in common.
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

// Compatible returns the highest protocol version that both sides support, or a [MismatchError]. A remote range of
// zeros comes from a cluster that reports no range: it supports version 1.
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
