// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// place adds to a pod where it may run, as the NamespaceOffloading requires: the toleration without which it fits no virtual node, and the
// required node affinity. avoid are nodes on which it would wait in vain. It reports whether the pod changed.
func place(pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec, avoid ...string) (changed bool) {
	if spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal {
		return false
	}
	toleration := corev1.Toleration{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.Contains(pod.Tolerations, toleration) {
		pod.Tolerations = append(pod.Tolerations, toleration)
		changed = true
	}
	terms := without(where(spec), avoid)
	if len(terms) == 0 {
		return changed
	}
	node := nodeAffinity(pod)
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
		return !slices.ContainsFunc(part, func(requirement corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(all, func(other corev1.NodeSelectorRequirement) bool {
				return requirement.Key == other.Key && requirement.Operator == other.Operator && slices.Equal(requirement.Values, other.Values)
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

// without returns the terms with some nodes left out; no terms stand for every node.
func without(terms []corev1.NodeSelectorTerm, nodes []string) (all []corev1.NodeSelectorTerm) {
	if len(nodes) == 0 {
		return terms
	}
	var fields []corev1.NodeSelectorRequirement
	for _, name := range nodes[:min(len(nodes), maxAvoided)] { // Kubernetes takes one value in each
		fields = append(fields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{name}})
	}
	if len(terms) == 0 {
		return []corev1.NodeSelectorTerm{{MatchFields: fields}}
	}
	own := kind(corev1.NodeSelectorOpNotIn)
	for _, term := range terms {
		if !slices.ContainsFunc(term.MatchExpressions, func(requirement corev1.NodeSelectorRequirement) bool {
			return requirement.Key == own.Key && requirement.Operator == own.Operator
		}) {
			term.MatchFields = append(slices.Clone(term.MatchFields), fields...)
		}
		all = append(all, term)
	}
	return all
}

// fitsElsewhere reports whether a pod may run, by its own node selector and affinity, on a node of this cluster, unless the strategy excludes these,
// or on one of the virtual nodes in run.
func fitsElsewhere(pod *corev1.Pod, nodes []corev1.Node, run []string, strategy offloadingv1alpha1.PodOffloadingStrategy) bool {
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	return slices.ContainsFunc(nodes, func(node corev1.Node) bool {
		if virtual := node.Labels[labels.Type] == labels.TypeVirtualNode; virtual &&
			!slices.Contains(run, node.Name) || !virtual && strategy == offloadingv1alpha1.PodsRemote {
			return false
		}
		fits, err := required.Match(&node)
		return err == nil && fits
	})
}

// maxAvoided bounds the nodes that the affinity of a pod names.
const maxAvoided = 32

// maxAffinity bounds the bytes of node affinity that a pod gets. They are the product of the terms of two users: with the sizes that the API
// server accepts from each, terabytes.
const maxAffinity = 256 << 10

// tooMuch reports whether the node affinity of a pod would exceed maxAffinity.
func tooMuch(pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	own, ours := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &spec.ClusterSelector
	const added = 64 // bytes that each term of the product adds
	each := func(terms *corev1.NodeSelector) int { return len(terms.NodeSelectorTerms) + 1 }
	return own.Size()*each(ours)+ours.Size()*each(own)+added*each(own)*each(ours) > maxAffinity
}

// both returns terms that match the nodes which match one term of the pod and one of ours: each combined with each.
func both(own, ours []corev1.NodeSelectorTerm) (terms []corev1.NodeSelectorTerm) {
	for _, nodeSelectorTerm := range own {
		if empty(nodeSelectorTerm) {
			continue
		}
		for _, other := range ours {
			terms = append(terms, corev1.NodeSelectorTerm{
				MatchExpressions: append(slices.Clone(nodeSelectorTerm.MatchExpressions), other.MatchExpressions...),
				MatchFields:      append(slices.Clone(nodeSelectorTerm.MatchFields), other.MatchFields...),
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

// nodeAffinity returns the node affinity of a pod, which it creates if there is none.
func nodeAffinity(pod *corev1.PodSpec) *corev1.NodeAffinity {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return pod.Affinity.NodeAffinity
}

// reachesVirtualNodes reports whether a DaemonSet with this template gets pods on virtual nodes without asking for them: it tolerates their taint as it
// tolerates every other, and does not mention the label by which it could choose them or avoid them.
func reachesVirtualNodes(pod *corev1.PodSpec) bool {
	named := func(t corev1.Toleration) bool { return t.Key == labels.TaintVirtualNode }
	every := func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute)
	}
	_, selects := pod.NodeSelector[labels.Type]
	return slices.ContainsFunc(pod.Tolerations, every) && !slices.ContainsFunc(pod.Tolerations, named) && !selects && !mentionsType(pod.Affinity)
}

func mentionsType(affinity *corev1.Affinity) bool {
	if affinity == nil || affinity.NodeAffinity == nil {
		return false
	}
	in := func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == labels.Type })
	}
	if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && slices.ContainsFunc(required.NodeSelectorTerms, in) {
		return true
	}
	return slices.ContainsFunc(
		affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		func(p corev1.PreferredSchedulingTerm) bool { return in(p.Preference) },
	)
}

// avoidVirtualNodes adds to a pod the documented node affinity, and reports whether the pod changed.
func avoidVirtualNodes(pod *corev1.PodSpec) (changed bool) {
	node, terms := nodeAffinity(pod), []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{kind(corev1.NodeSelectorOpNotIn)}}}
	if own := node.RequiredDuringSchedulingIgnoredDuringExecution; own != nil {
		if within(own.NodeSelectorTerms, append(terms, nowhere()...)) {
			return false
		}
		terms = both(own.NodeSelectorTerms, terms)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return true
}

// onlyVirtual reports whether the user wants a pod in other clusters only, or has chosen its node already: then it is placed as he wants it, also
// with a claim that keeps other pods here.
func onlyVirtual(pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	if spec.PodOffloadingStrategy == offloadingv1alpha1.PodsRemote || pod.NodeName != "" || pod.NodeSelector[labels.Type] == labels.TypeVirtualNode {
		return true
	}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	virtual := func(requirement corev1.NodeSelectorRequirement) bool {
		return requirement.Key == labels.Type && (requirement.Operator == corev1.NodeSelectorOpExists ||
			requirement.Operator == corev1.NodeSelectorOpIn && slices.Equal(requirement.Values, []string{labels.TypeVirtualNode}))
	}
	return !slices.ContainsFunc(pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
		func(term corev1.NodeSelectorTerm) bool {
			return !empty(term) && !slices.ContainsFunc(term.MatchExpressions, virtual)
		})
}

// nodeOfDaemonSet returns the node for which the controller of DaemonSets made a pod; nothing for another pod.
func nodeOfDaemonSet(pod *corev1.Pod) (name string) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || owner.Kind != "DaemonSet" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				name = field.Values[0] // the same in each term
			}
		}
	}
	return name
}
