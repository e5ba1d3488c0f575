// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	policyapply "k8s.io/client-go/applyconfigurations/policy/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Budget returns the disruption budget that the peer gets for one of this cluster: so many pods of those that run there for this cluster have to stay healthy. An
// integer is the only form that Kubernetes evaluates for them, because the controller of a pod there has no scale. No controller there reads labels and annotations of it, so it has none of the user's.
func Budget(m project.NamespaceMapping, local *policyv1.PodDisruptionBudget, number int32) *policyapply.PodDisruptionBudgetApplyConfiguration {
	selector := metaapply.LabelSelector().WithMatchLabels(map[string]string{labels.Origin: m.LocalID})
	if own := local.Spec.Selector; own != nil {
		for key, value := range own.MatchLabels {
			if key != labels.Origin {
				selector.MatchLabels[key] = value
			}
		}
		for _, one := range own.MatchExpressions {
			selector.WithMatchExpressions(metaapply.LabelSelectorRequirement().WithKey(one.Key).WithOperator(one.Operator).WithValues(one.Values...))
		}
	}
	spec := policyapply.PodDisruptionBudgetSpec().WithMinAvailable(intstr.FromInt32(number)).WithSelector(selector)
	spec.UnhealthyPodEvictionPolicy = local.Spec.UnhealthyPodEvictionPolicy
	return policyapply.PodDisruptionBudget(local.Name, m.Remote).
		WithLabels(map[string]string{labels.Origin: m.LocalID, labels.Destination: m.RemoteID}).WithSpec(spec)
}

// Doubtful returns, in order, the keys of a selector that pods in the peer may lack, although they have them here: each provider decides which labels in domains it knows.
func Doubtful(m project.NamespaceMapping, selector *metav1.LabelSelector) (keys []string) {
	if selector == nil {
		return nil
	}
	keys = slices.Collect(maps.Keys(selector.MatchLabels))
	for _, one := range selector.MatchExpressions {
		keys = append(keys, one.Key)
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
