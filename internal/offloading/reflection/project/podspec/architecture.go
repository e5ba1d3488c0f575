// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// architectures returns the architectures of nodes that a pod names in its node selector or its required node affinity, so that it runs on each of them; nil if
// it names none, or not in a list. The scheduler of this cluster knows one architecture of the peer, which the pod accepts in that case, too.
func architectures(spec *corev1.PodSpec) (named []string) {
	if arch := spec.NodeSelector[corev1.LabelArchStable]; arch != "" {
		return []string{arch}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		at := slices.IndexFunc(term.MatchExpressions, func(requirement corev1.NodeSelectorRequirement) bool {
			return requirement.Key == corev1.LabelArchStable
		})
		if at < 0 || term.MatchExpressions[at].Operator != corev1.NodeSelectorOpIn ||
			slices.ContainsFunc(term.MatchExpressions[at+1:], func(requirement corev1.NodeSelectorRequirement) bool {
				return requirement.Key == corev1.LabelArchStable
			}) {
			return nil
		}
		named = append(named, term.MatchExpressions[at].Values...)
	}
	slices.Sort(named)
	return slices.Compact(named)
}
