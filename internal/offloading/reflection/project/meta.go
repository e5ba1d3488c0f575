// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
)

// ErrNoCounterpart is the error of a Translator for an address that the other cluster can never reach: the address is left out. Any other error
// means that the translation is not known yet.
var ErrNoCounterpart = errors.New("the address has no counterpart in the other cluster")

// ErrRefused means that an object cannot be reflected as it is. An event asks its owner to change it.
var ErrRefused = errors.New("refused")

// NamespaceMapping is a local namespace and its remote namespace in a peer, with the identities of the two clusters.
type NamespaceMapping struct {
	// LocalID and RemoteID are cluster IDs, LocalName and RemoteName the names of the clusters.
	LocalID, LocalName, RemoteID, RemoteName string
	// NodeName is the virtual node of the peer.
	NodeName string
	// Domain is the domain of the Services of this cluster; empty: DefaultDomain.
	Domain string
	// DNS are the name servers of this cluster.
	DNS []netip.Addr
	// Local and Remote are the names of the namespaces.
	Local, Remote string
	// Skip is what is not reflected.
	Skip Denied
}

// DefaultDomain is the domain of the Services of most clusters.
const DefaultDomain = "cluster.local"

// ServiceDomain returns the domain of the Services of this cluster.
func (m NamespaceMapping) ServiceDomain() string { return cmp.Or(m.Domain, DefaultDomain) }

// Translator translates addresses of pods between the clusters. See ErrNoCounterpart for its errors.
type Translator interface {
	// ToLocal returns the address under which this cluster reaches a remote pod.
	ToLocal(netip.Addr) (netip.Addr, error)
	// ToRemote returns the address under which the peer reaches a local endpoint.
	ToRemote(netip.Addr) (netip.Addr, error)
}

// Denied is metadata that is not reflected, because the user or the peer does not want it.
type Denied struct {
	Labels, Annotations Keys
	// NodePorts: the peer assigns node ports, whatever the annotation of a Service requests.
	NodePorts bool
}

// Keys are keys of labels or annotations. A key that ends in * stands for all keys with that prefix.
type Keys = metadata.Keys

// Skipped reports whether the annotation of an object excludes it from reflection.
func Skipped(object metav1.Object) bool {
	_, skipped := object.GetAnnotations()[labels.SkipReflection]
	return skipped
}

// Skips reports whether an annotation of an object excludes it from reflection to this peer.
func (m NamespaceMapping) Skips(object metav1.Object) bool {
	if Skipped(object) {
		return true
	}
	to, ok := object.GetAnnotations()[labels.ReflectTo]
	return ok && !slices.ContainsFunc(strings.Split(to, ","), func(node string) bool { return strings.TrimSpace(node) == m.NodeName })
}

// LocalAnnotations have no meaning in another cluster. Controllers of this cluster change them, which would cost writes.
var LocalAnnotations = Keys{corev1.LastAppliedConfigAnnotation, corev1.EndpointsLastChangeTriggerTime, "kubernetes.io/config.*", labels.ReflectTo}

// Without returns the map without the denied keys and without those of own.
func Without(all map[string]string, denied Keys, own ...string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return denied.Match(key) || Keys(own).Match(key) })
	return kept
}

// LabelsOf returns the labels of the remote object.
func (m NamespaceMapping) LabelsOf(object metav1.Object, own ...string) map[string]string {
	// With the labels of a token Secret, the copy would be taken for one and deleted. Those of a move mean nothing to the other cluster, which refuses them.
	all := Without(object.GetLabels(), m.Skip.Labels, append(own, labels.TokenPod, labels.TokenServiceAccount, labels.Move, labels.MoveRole)...)
	if all == nil {
		all = map[string]string{}
	}
	all[labels.Origin], all[labels.Destination] = m.LocalID, m.RemoteID
	return all
}

// AnnotationsOf returns the annotations of the remote object.
func (m NamespaceMapping) AnnotationsOf(object metav1.Object, own ...string) map[string]string {
	return Without(object.GetAnnotations(), m.Skip.Annotations, append(own, LocalAnnotations...)...)
}

// Reflected reports whether we created a remote object. We never touch any other.
func (m NamespaceMapping) Reflected(remote metav1.Object) bool {
	all := remote.GetLabels()
	return all[labels.Origin] == m.LocalID && all[labels.Destination] == m.RemoteID
}

// Spoken returns a message of the peer with the name of the cluster that speaks: what reads "this cluster" there,
// and "the nodes" without a word, is not this one.
func (m NamespaceMapping) Spoken(message string) string {
	if m.RemoteName == "" {
		return message
	}
	speaker := fmt.Sprintf("cluster %q", m.RemoteName)
	if named := strings.ReplaceAll(message, "this cluster", speaker); named != message {
		return named
	}
	return speaker + ": " + message
}

// Some returns a pointer to a value, nil for the zero value: we do not own a field that is not set.
func Some[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// Hash is short, but enough to distinguish the few texts within one object.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:6]
}

// Short returns a name of at most so many characters: one that is longer is cut, and a hash keeps different names different.
func Short(name string, most int) string {
	if len(name) <= most {
		return name
	}
	// A part of a DNS name must not start with the hyphen.
	return strings.TrimRight(name[:most-7], ".") + "-" + Hash(name)
}
