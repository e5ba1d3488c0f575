// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// place puts into a pod where it may run, as the namespace's wish says: the toleration without which no virtual node takes it, and the
// required node affinity. It tells whether that changed anything.
func place(pod *corev1.PodSpec, wish *offloadingv1alpha1.NamespaceOffloadingSpec) (changed bool) {
	if wish.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal {
		return false
	}
	toleration := corev1.Toleration{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.Contains(pod.Tolerations, toleration) {
		pod.Tolerations = append(pod.Tolerations, toleration)
		changed = true
	}
	terms := where(wish)
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
		terms = both(own.NodeSelectorTerms, terms)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return true
}

func kind(operator corev1.NodeSelectorOperator) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: labels.Type, Operator: operator, Values: []string{labels.TypeVirtualNode}}
}

// where returns the terms of which a node must fit one; none if every node will do.
func where(wish *offloadingv1alpha1.NamespaceOffloadingSpec) (terms []corev1.NodeSelectorTerm) {
	selected := wish.ClusterSelector.NodeSelectorTerms
	remote := wish.PodOffloadingStrategy == offloadingv1alpha1.PodsRemote
	if len(selected) == 0 {
		if remote {
			return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpIn)}}}
		}
		return nil
	}
	for _, term := range selected {
		if empty(term) {
			continue // fits no node, and must not begin to
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

// mostAffinity is how many bytes of node affinity a pod may be given. It is a product of what two users write: what each may write, and the API
// server keeps, would be terabytes.
const mostAffinity = 256 << 10

// tooMuch tells whether the node affinity of a pod would be.
func tooMuch(pod *corev1.PodSpec, wish *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	own, ours := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &wish.ClusterSelector
	const added = 64 // that is what the product has besides, for each
	each := func(terms *corev1.NodeSelector) int { return len(terms.NodeSelectorTerms) + 1 }
	return own.Size()*each(ours)+ours.Size()*each(own)+added*each(own)*each(ours) > mostAffinity
}

// both are the terms that fit what fits one of the pod's and one of ours: each with each.
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

// nowhere fits no node. An empty list would not be a valid way to say so.
func nowhere() []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpIn), kind(corev1.NodeSelectorOpNotIn)}}}
}
