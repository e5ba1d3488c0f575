// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"path"
	"slices"

	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/offloading/shadow"
)

// Options of the controller.
type Options struct {
	// Namespace in which Liqo is installed.
	Namespace string
	// Names are the namespaces that peers may ask for by name.
	Names PeerNames
	// Bounds of each remote namespace.
	Bounds Bounds
	// Isolation of the pods in remote namespaces.
	Isolation Isolation
	// Level is the Pod Security level that new remote namespaces enforce; empty for none.
	Level shadow.Level
	// Most is the number of namespaces that one peer may have. Zero means 500.
	Most int
	// Policies knows whether the admission policies that limit peers are in force; nil if they are not required.
	Policies *policies.Guard
}

// PeerNames are patterns of the namespaces that peers may ask for by name. A * stands for any characters.
type PeerNames struct {
	// Allow must match, and Deny must not. A nil Allow allows every name.
	Allow, Deny []string
}

// Validate returns an error if a pattern cannot be read.
func (n PeerNames) Validate() error {
	for _, pattern := range slices.Concat(n.Allow, n.Deny) {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("%q is not a pattern of namespaces; use a name in which * stands for any characters, such as monitoring or istio-*", pattern)
		}
	}
	return nil
}

// allows reports whether a peer may ask for the name.
func (n PeerNames) allows(name string) bool {
	matches := func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	}
	return (n.Allow == nil || slices.ContainsFunc(n.Allow, matches)) && !slices.ContainsFunc(n.Deny, matches)
}
