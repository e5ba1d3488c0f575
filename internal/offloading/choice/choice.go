// SPDX-License-Identifier: Apache-2.0

// Package choice decides which clusters a namespace is offloaded to, by the labels of their virtual nodes. The controller uses it to decide which
// remote namespaces should exist, and liqoctl to show which of them a new selector would delete, with everything in them: the two must agree.
//
// The package must not know where selectors and nodes come from, nor how the decision is used. It is proved by choice_test.go and, with
// its caller, by TestChooses.
package choice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Settled reports whether the labels of a virtual node are those of its cluster. A node that was just registered has none yet, and without a
// node nothing is known.
func Settled(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp == nil && node.Labels[corev1.LabelHostname] != "" &&
		slices.ContainsFunc(node.Status.Conditions, func(one corev1.NodeCondition) bool { return one.Type == corev1.NodeReady })
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
