// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

// onRealNodes returns the affinity of a volume of this cluster: that of the real volume, and no virtual node. Kubernetes takes the terms as
// alternatives, so each gets the requirement.
func onRealNodes(of *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	local := corev1.NodeSelectorRequirement{Key: labels.Type, Operator: corev1.NodeSelectorOpDoesNotExist}
	terms := []corev1.NodeSelectorTerm{{}}
	if of != nil && of.Required != nil {
		terms = of.DeepCopy().Required.NodeSelectorTerms
	}
	// A term without any requirement matches no node, not all of them.
	if of != nil && of.Required != nil {
		terms = slices.DeleteFunc(terms, func(term corev1.NodeSelectorTerm) bool {
			return len(term.MatchExpressions)+len(term.MatchFields) == 0
		})
	}
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, local)
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// onNode returns the affinity of a volume that can be used on one node only.
func onNode(name string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}
