// SPDX-License-Identifier: Apache-2.0

// Package choice decides which clusters a namespace is offloaded to, by the labels of their virtual nodes. The controller asks it what twins
// there are to be, and liqoctl what a new selector would give up: both must say the same, as what is in a twin goes with it.
//
// It must not know where selectors and nodes come from, nor what follows. Its proofs are choice_test.go and, with what is around it, TestChooses.
package choice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Settled tells whether the labels of a virtual node are those of its cluster: a node that has just been registered has none yet, and where
// there is no node, nothing is known.
func Settled(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp == nil && node.Labels[corev1.LabelHostname] != "" &&
		slices.ContainsFunc(node.Status.Conditions, func(one corev1.NodeCondition) bool { return one.Type == corev1.NodeReady })
}

// Fits tells whether a selector chooses the cluster of a virtual node. One without terms chooses all; one that cannot be understood is an error.
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
