// SPDX-License-Identifier: Apache-2.0

package project

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// ErrNoCounterpart is what a Translator answers for an address that the other cluster has no way to, and never will: it is left out.
// Any other error means that it is not known yet.
var ErrNoCounterpart = errors.New("the address has no counterpart in the other cluster")

// ErrRefused says that an object asks for what cannot be: who made it has to change it, and is told by an event.
var ErrRefused = errors.New("refused")

// NamespaceMapping is a namespace and its twin in a peer.
type NamespaceMapping struct {
	// LocalID and RemoteID are cluster IDs, LocalName the name of this cluster.
	LocalID, LocalName, RemoteID string
	// NodeName is the virtual node of the peer.
	NodeName string
	// Local and Remote are the names of the namespaces.
	Local, Remote string
	// Skip is what of the metadata never crosses.
	Skip Denied
}

// Translator turns addresses of pods into what the other cluster knows them by.
type Translator interface {
	// ToLocal is the address of a remote pod as it is seen here.
	ToLocal(netip.Addr) (netip.Addr, error)
	// ToRemote is the address of a local endpoint as the peer sees it.
	ToRemote(netip.Addr) (netip.Addr, error)
}

// Denied are keys of labels and annotations that never cross.
type Denied struct {
	Labels, Annotations Keys
}

// Keys are keys of labels or annotations. One that ends in * stands for all that begin so.
type Keys []string

// ParseKeys reads keys as they are given on the command line.
func ParseKeys(patterns []string) (Keys, error) {
	var keys Keys
	for _, pattern := range patterns {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			return nil, errors.New("an empty key: give a key, or the begin of keys and a *")
		}
		if star := strings.IndexByte(pattern, '*'); star >= 0 && star != len(pattern)-1 {
			return nil, fmt.Errorf("key %q: a * may only be its last character", pattern)
		}
		keys = append(keys, pattern)
	}
	return keys, nil
}

// Match says whether the key is one of them.
func (k Keys) Match(key string) bool {
	for _, pattern := range k {
		if begin, all := strings.CutSuffix(pattern, "*"); pattern == key || all && strings.HasPrefix(key, begin) {
			return true
		}
	}
	return false
}

// Skipped says whether an object stays here because its annotation asks for that.
func Skipped(object metav1.Object) bool {
	_, skipped := object.GetAnnotations()[labels.SkipReflection]
	return skipped
}

// localAnnotations mean nothing in another cluster, or are for its kubelets only, and change for reasons of this one.
var localAnnotations = Keys{corev1.LastAppliedConfigAnnotation, corev1.EndpointsLastChangeTriggerTime, "kubernetes.io/config.*"}

// copied is the map without what the link denies, nor any of own.
func copied(all map[string]string, denied Keys, own ...string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return denied.Match(key) || Keys(own).Match(key) })
	return kept
}

// labelsOf are the labels that an object has in the peer.
func (m NamespaceMapping) labelsOf(object metav1.Object, own ...string) map[string]string {
	// What marks a Secret with tokens would have this copy taken for one, and deleted.
	all := copied(object.GetLabels(), m.Skip.Labels, append(own, labels.TokenPod, labels.TokenServiceAccount)...)
	if all == nil {
		all = map[string]string{}
	}
	all[labels.Origin], all[labels.Destination] = m.LocalID, m.RemoteID
	return all
}

// annotationsOf are the annotations that an object has in the peer.
func (m NamespaceMapping) annotationsOf(object metav1.Object, own ...string) map[string]string {
	return copied(object.GetAnnotations(), m.Skip.Annotations, append(own, localAnnotations...)...)
}

// Reflected says whether an object in the peer is one that this link has made: no other is ever touched.
func (m NamespaceMapping) Reflected(remote metav1.Object) bool {
	all := remote.GetLabels()
	return all[labels.Origin] == m.LocalID && all[labels.Destination] == m.RemoteID
}

// some is a pointer to a value, nil if that is zero: a field that is not set is not ours.
func some[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
