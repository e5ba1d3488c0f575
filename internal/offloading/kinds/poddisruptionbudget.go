// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	policyapply "k8s.io/client-go/applyconfigurations/policy/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// PodDisruptionBudget has in the peer the number of pods there that must stay healthy. Earlier peers and some administrators grant no rights on it, so that it
// is no content that users are asked about.
var PodDisruptionBudget = row(Kind{
	Local:    Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Remote:   Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Register: []func(*runtime.Scheme) error{policyv1.AddToScheme}, Order: 80,
	Flag: "poddisruptionbudget", Workers: defaultWorkers, Exposes: true,
	Counted: true,
	Optional: &Optional{
		None: "the remote cluster takes no budget, so a drain of its nodes does not respect this one for the pods that run there; its administrator can update " +
			"Liqo there, " +
			"or set the value peers.budgets",
		Refused: "the remote cluster refuses this budget", Hint: "the value peers.budgets there decides whether it takes any",
		Means: "so that a drain of its nodes does not respect it for the pods that run there",
	},
	// Without the value, a peer still finds and deletes those that it has written.
	Rights: Rights{Bounded: true, Value: "budgets", Without: []string{"get", "list", "watch", "delete"}},
	Most:   "100", Total: "500",
	// Each keeps nodes from being drained, which administrators of the peer may overrule (docs/peering.md). Its form is the one that Kubernetes evaluates for pods
	// whose controller has no scale. The metadata gives no orders: reflection writes only its own labels.
	Guard: &Guard{Name: "budgets", Validations: []Validation{
		{
			Expression: `!has(object.spec.maxUnavailable) && has(object.spec.minAvailable) && type(object.spec.minAvailable) == int`,
			Message:    "a disruption budget of a peer must have minAvailable as a number, since Kubernetes evaluates no other form for its pods",
		},
		{ // So it keeps no pods of others from being evicted that an administrator runs in the namespace.
			Expression: `object.spec.?selector.?matchLabels[?"virtualkubelet.liqo.io/origin"].orValue("") == ` +
				`namespaceObject.metadata.labels["liqo.io/remote-cluster-id"]`,
			MessageExpression: `"a disruption budget of a peer must select its own pods, by the label virtualkubelet.liqo.io/origin: " + ` +
				`namespaceObject.metadata.labels["liqo.io/remote-cluster-id"]`,
		},
		{
			Expression: `!has(object.metadata.labels) || object.metadata.labels.all(key, ` +
				`key in ["virtualkubelet.liqo.io/origin", "virtualkubelet.liqo.io/destination"] ` +
				`|| request.operation == "UPDATE" && has(oldObject.metadata.labels) && key in oldObject.metadata.labels && ` +
				`oldObject.metadata.labels[key] == object.metadata.labels[key])`,
			Message: "a disruption budget of a peer must have no labels but virtualkubelet.liqo.io/origin and virtualkubelet.liqo.io/destination",
		},
		{
			Expression: `!has(object.metadata.annotations) || object.metadata.annotations.all(key, ` +
				`request.operation == "UPDATE" && has(oldObject.metadata.annotations) && key in oldObject.metadata.annotations && ` +
				`oldObject.metadata.annotations[key] == object.metadata.annotations[key])`,
			Message: "a disruption budget of a peer must have no annotations",
		},
		{
			Expression: `!has(object.metadata.finalizers) || object.metadata.finalizers.all(one, ` +
				`request.operation == "UPDATE" && has(oldObject.metadata.finalizers) && ` +
				`one in oldObject.metadata.finalizers)`,
			Message: "a peer may not hold a namespace of this cluster with a finalizer",
		},
	}},
})

// Budget returns the disruption budget that the peer gets for one of this cluster: so many pods of those that run there for this cluster have to stay healthy.
// An integer is the only form that Kubernetes evaluates for them, because the controller of a pod there has no scale. No controller there reads labels and
// annotations of it, so it has none of the user's.
func Budget(m project.NamespaceMapping, local *policyv1.PodDisruptionBudget, number int32) *policyapply.PodDisruptionBudgetApplyConfiguration {
	selector := metaapply.LabelSelector().WithMatchLabels(map[string]string{labels.Origin: m.LocalID})
	if own := local.Spec.Selector; own != nil {
		for key, value := range own.MatchLabels {
			if key != labels.Origin {
				selector.MatchLabels[key] = value
			}
		}
		for _, requirement := range own.MatchExpressions {
			selector.WithMatchExpressions(metaapply.LabelSelectorRequirement().WithKey(requirement.Key).WithOperator(requirement.Operator).WithValues(requirement.Values...))
		}
	}
	spec := policyapply.PodDisruptionBudgetSpec().WithMinAvailable(intstr.FromInt32(number)).WithSelector(selector)
	spec.UnhealthyPodEvictionPolicy = local.Spec.UnhealthyPodEvictionPolicy
	return policyapply.PodDisruptionBudget(local.Name, m.Remote).
		WithLabels(map[string]string{labels.Origin: m.LocalID, labels.Destination: m.RemoteID}).WithSpec(spec)
}

// Doubtful returns, in order, the keys of a selector that pods in the peer may lack, although they have them here: each
// provider decides which labels in domains it knows.
func Doubtful(m project.NamespaceMapping, selector *metav1.LabelSelector) (keys []string) {
	if selector == nil {
		return nil
	}
	keys = slices.Collect(maps.Keys(selector.MatchLabels))
	for _, requirement := range selector.MatchExpressions {
		keys = append(keys, requirement.Key)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return metadata.Kept(key) && !m.Skip.Labels.Match(key) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// LabelsThere returns the labels of a pod in the peer: of those in doubt, what it has there.
func LabelsThere(m project.NamespaceMapping, local, there map[string]string) klabels.Set {
	all := klabels.Set{}
	for key, value := range local {
		if metadata.Kept(key) && !m.Skip.Labels.Match(key) {
			all[key] = value
		}
	}
	maps.Copy(all, there)
	return all
}

const (
	// mostDoubtful bounds how many labels of a remote pod are kept.
	mostDoubtful = 16
	mostKey      = 253 + 1 + 63
	mostValue    = 63
)

// DoubtfulLabels returns those labels of a remote pod that only some providers let it have, without those of its node. Most pods have none.
func DoubtfulLabels(remote map[string]string) (kept map[string]string) {
	var keys []string
	for key, value := range remote {
		if metadata.Doubtful(key) && len(key) <= mostKey && len(value) <= mostValue {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), mostDoubtful)] {
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = remote[key]
	}
	return kept
}
