// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// place adds to a pod where it may run, as the NamespaceOffloading requires: the toleration without which it fits no virtual node, and the
// required node affinity. It reports whether the pod changed.
func place(pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec) (changed bool) {
	if spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal {
		return false
	}
	toleration := corev1.Toleration{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.Contains(pod.Tolerations, toleration) {
		pod.Tolerations = append(pod.Tolerations, toleration)
		changed = true
	}
	terms := where(spec)
	if len(terms) == 0 {
		return changed
	}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := pod.Affinity.NodeAffinity
	if own := node.RequiredDuringSchedulingIgnoredDuringExecution; own != nil {
		if within(own.NodeSelectorTerms, append(terms, nowhere()...)) {
			return changed
		}
		terms = both(own.NodeSelectorTerms, terms)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return true
}

// within reports whether each term of the pod contains one of ours, so that adding ours would change nothing. The API server calls the webhook twice
// for a pod that is created while its namespace is being labelled.
func within(own, ours []corev1.NodeSelectorTerm) bool {
	contains := func(all, part []corev1.NodeSelectorRequirement) bool {
		return !slices.ContainsFunc(part, func(one corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(all, func(other corev1.NodeSelectorRequirement) bool {
				return one.Key == other.Key && one.Operator == other.Operator && slices.Equal(one.Values, other.Values)
			})
		})
	}
	return len(own) > 0 && !slices.ContainsFunc(own, func(term corev1.NodeSelectorTerm) bool {
		return empty(term) || !slices.ContainsFunc(ours, func(part corev1.NodeSelectorTerm) bool {
			return contains(term.MatchExpressions, part.MatchExpressions) && contains(term.MatchFields, part.MatchFields)
		})
	})
}

func kind(operator corev1.NodeSelectorOperator) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: labels.Type, Operator: operator, Values: []string{labels.TypeVirtualNode}}
}

// where returns the terms of which a node must match one; none if every node is allowed.
func where(spec *offloadingv1alpha1.NamespaceOffloadingSpec) (terms []corev1.NodeSelectorTerm) {
	selected := spec.ClusterSelector.NodeSelectorTerms
	remote := spec.PodOffloadingStrategy == offloadingv1alpha1.PodsRemote
	if len(selected) == 0 {
		if remote {
			return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpIn)}}}
		}
		return nil
	}
	for _, term := range selected {
		if empty(term) {
			continue // it matches no node, and the added requirement must not change that
		}
		term.MatchExpressions = append(slices.Clone(term.MatchExpressions), kind(corev1.NodeSelectorOpIn))
		terms = append(terms, term)
	}
	if !remote {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpNotIn)}})
	}
	if len(terms) == 0 {
		return nowhere()
	}
	return terms
}

// mostAffinity bounds the bytes of node affinity that a pod gets. They are the product of the terms of two users: with the sizes that the API
// server accepts from each, terabytes.
const mostAffinity = 256 << 10

// tooMuch reports whether the node affinity of a pod would exceed mostAffinity.
func tooMuch(pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	own, ours := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &spec.ClusterSelector
	const added = 64 // bytes that each term of the product adds
	each := func(terms *corev1.NodeSelector) int { return len(terms.NodeSelectorTerms) + 1 }
	return own.Size()*each(ours)+ours.Size()*each(own)+added*each(own)*each(ours) > mostAffinity
}

// both returns terms that match the nodes which match one term of the pod and one of ours: each combined with each.
func both(own, ours []corev1.NodeSelectorTerm) (terms []corev1.NodeSelectorTerm) {
	for _, one := range own {
		if empty(one) {
			continue
		}
		for _, other := range ours {
			terms = append(terms, corev1.NodeSelectorTerm{
				MatchExpressions: append(slices.Clone(one.MatchExpressions), other.MatchExpressions...),
				MatchFields:      append(slices.Clone(one.MatchFields), other.MatchFields...),
			})
		}
	}
	if len(terms) == 0 {
		return nowhere()
	}
	return terms
}

func empty(term corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions)+len(term.MatchFields) == 0
}

// nowhere returns terms that match no node. An empty list would not be valid.
func nowhere() []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpIn), kind(corev1.NodeSelectorOpNotIn)}}}
}
