// SPDX-License-Identifier: Apache-2.0

// Package choice decides which clusters a namespace is offloaded to, by the labels of their virtual nodes. The controller uses it to decide which
// remote namespaces should exist, and liqoctl to show which of them a new selector would delete, with everything in them: the two must agree.
//
// The package must not know where selectors and nodes come from, nor how the decision is used. It is proved by choice_test.go and, with
// It must not know how the labels got onto the node. choice_test.go proves it, TestAttackM2 with a real API server.
package choice

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"liqo.io/liqo/apis/labels"
)

// byDefault are the labels of a provider that selectors consider if its ForeignCluster has no list: those that the documents name.
var byDefault = []string{labels.Provider, "topology.kubernetes.io/*", "topology.liqo.io/*", corev1.LabelInstanceTypeStable}

// Accepted returns the list of accepted labels of a ForeignCluster, or what stands for a missing one.
func Accepted(accepted []string) []string {
	if accepted == nil {
		return slices.Clone(byDefault)
	}
	return accepted
}

// Named returns those of some labels, each KEY=VALUE, whose keys a selector names.
func Named(selector *corev1.NodeSelector, all []string) (named []string) {
	for _, entry := range all {
		key, _, _ := strings.Cut(entry, "=")
		if slices.ContainsFunc(selector.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
			return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == key })
		}) {
			named = append(named, entry)
		}
	}
	return named
}

// AcceptCommand is what an administrator types to accept labels of a cluster. Keys and values are those of a node, so a shell reads nothing else in them.
func AcceptCommand(cluster string, all []string) string {
	return "liqoctl accept labels " + cluster + " " + strings.Join(all, " ")
}

// Settled reports whether the labels of a virtual node are those of its cluster. A node that was just registered has none yet, and without a
// node nothing is known.
func Settled(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	_, marked := node.Annotations[labels.ProviderLabels]
	return marked && node.DeletionTimestamp == nil && node.Labels[corev1.LabelHostname] != "" &&
		slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type == corev1.NodeReady })
}

// View returns the node as selectors see it: without the labels that its provider chose and this cluster does not accept. accepted is that of the
// ForeignCluster: nil means the default, which is not the same as an empty list. hidden are the left out labels as KEY=VALUE, sorted.
func View(node *corev1.Node, accepted []string) (view *corev1.Node, hidden []string) {
	if node == nil {
		return nil, nil
	}
	accepted = Accepted(accepted)
	kept := maps.Clone(node.Labels)
	for key := range strings.SplitSeq(node.Annotations[labels.ProviderLabels], ",") {
		value, ok := node.Labels[key]
		if ok && !slices.ContainsFunc(accepted, func(entry string) bool { return accepts(entry, key, value) }) {
			delete(kept, key)
			hidden = append(hidden, key+"="+value)
		}
	}
	if len(hidden) == 0 {
		return node, nil
	}
	slices.Sort(hidden)
	shown := *node
	shown.Labels = kept
	return &shown, hidden
}

// accepts reports whether an entry of the list (KEY, KEY=VALUE, PREFIX/*, *) accepts a label.
func accepts(entry, key, value string) bool {
	if only, want, has := strings.Cut(entry, "="); has {
		return only == key && want == value
	}
	if prefix, ok := strings.CutSuffix(entry, "*"); ok && (prefix == "" || strings.HasSuffix(prefix, "/")) {
		return strings.HasPrefix(key, prefix)
	}
	return entry == key
}

// Fits reports whether a selector selects the cluster of a virtual node. A selector without terms selects all clusters; an invalid one is an error.
func Fits(selector *corev1.NodeSelector, node *corev1.Node) (bool, error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return true, nil
	}
	parsed, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return false, err
	}
	return parsed.Match(node), nil
}
