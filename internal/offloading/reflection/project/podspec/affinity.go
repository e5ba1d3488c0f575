// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// perPodLabels differ between the pods of one application, so they cannot select the application.
var perPodLabels = project.Keys{
	appsv1.ControllerRevisionHashLabelKey, appsv1.DefaultDeploymentUniqueLabelKey,
	appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, batchv1.JobCompletionIndexAnnotation,
}

// affinity returns the affinity that a pod has in the peer: none, because its own refers to nodes of this cluster, unless the annotation asks for
// anti-affinity between the pods of the application. all are the labels of the remote pod.
func affinity(local *corev1.Pod, all map[string]string) (*corev1.Affinity, error) {
	preset, ok := local.Annotations[labels.AntiAffinityPreset]
	if !ok {
		return nil, nil
	}
	if preset == labels.AntiAffinityPropagate {
		if local.Spec.Affinity == nil || local.Spec.Affinity.PodAntiAffinity == nil {
			return nil, nil
		}
		propagated := local.Spec.Affinity.PodAntiAffinity.DeepCopy()
		if namesNamespaces(propagated) {
			return nil, refused("annotation "+labels.AntiAffinityPreset, preset,
				"the podAntiAffinity names namespaces of this cluster; it may only select pods of its own namespace")
		}
		for i := range propagated.RequiredDuringSchedulingIgnoredDuringExecution {
			unmergeTerm(&propagated.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
		for i := range propagated.PreferredDuringSchedulingIgnoredDuringExecution {
			unmergeTerm(&propagated.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
		}
		return &corev1.Affinity{PodAntiAffinity: propagated}, nil
	}
	if preset != labels.AntiAffinitySoft && preset != labels.AntiAffinityHard {
		return nil, refused("annotation "+labels.AntiAffinityPreset, preset, "use soft, hard or propagate")
	}
	group, err := groupLabels(local, all)
	if err != nil {
		return nil, err
	}
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: group}}
	if preset == labels.AntiAffinityHard {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}, nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}},
	}}, nil
}

// spread returns the spread constraints that a pod has in the peer. This cluster has chosen the virtual node by them, so they are preferences there: its nodes
// may lack the label of a constraint, and its scheduler counts only the pods that run there. The annotation copies them as they are.
func spread(local *corev1.Pod, constraints []corev1.TopologySpreadConstraint) (remote []corev1.TopologySpreadConstraint, err error) {
	preset, ok := local.Annotations[labels.SpreadPreset]
	if ok && preset != labels.SpreadSoft && preset != labels.SpreadPropagate {
		return nil, refused("annotation "+labels.SpreadPreset, preset, "use soft or propagate")
	}
	for _, constraint := range constraints {
		constraint.MatchLabelKeys = unmerged(constraint.MatchLabelKeys, constraint.LabelSelector)
		if preset == labels.SpreadPropagate {
			remote = append(remote, constraint)
			continue
		}
		// Kubernetes allows one preference for a topology. Beside a requirement for it, the preference of the user is the weaker one.
		if constraint.WhenUnsatisfiable == corev1.ScheduleAnyway && slices.ContainsFunc(constraints, func(other corev1.TopologySpreadConstraint) bool {
			return other.TopologyKey == constraint.TopologyKey && other.WhenUnsatisfiable == corev1.DoNotSchedule
		}) {
			continue
		}
		constraint.WhenUnsatisfiable, constraint.MinDomains = corev1.ScheduleAnyway, nil
		remote = append(remote, constraint)
	}
	return remote, nil
}

// groupLabels returns the labels that select the pods of the same application. Without any label the selector would match all pods of the namespace, which
// is an error.
func groupLabels(local *corev1.Pod, all map[string]string) (map[string]string, error) {
	listed, only := local.Annotations[labels.AntiAffinityLabels]
	if !only {
		group := project.Without(all, perPodLabels)
		if len(group) == 0 {
			return nil, refused("annotation "+labels.AntiAffinityPreset, local.Annotations[labels.AntiAffinityPreset],
				"the pod has no label that it shares with the other pods of its application: add one")
		}
		return group, nil
	}
	keys := strings.Split(listed, ",")
	for i := range keys {
		keys[i] = strings.TrimSpace(keys[i])
	}
	group := project.Without(all, nil)
	for key := range all {
		if !slices.Contains(keys, key) {
			delete(group, key)
		}
	}
	if len(group) == 0 {
		return nil, refused("annotation "+labels.AntiAffinityLabels, listed, "list labels of the pod, separated by commas")
	}
	return group, nil
}

func unmergeTerm(term *corev1.PodAffinityTerm) {
	term.MatchLabelKeys = unmerged(term.MatchLabelKeys, term.LabelSelector)
	term.MismatchLabelKeys = unmerged(term.MismatchLabelKeys, term.LabelSelector)
}

// unmerged returns the label keys that the API server of this cluster has not merged into the selector, as it does when it creates a pod (for spread
// constraints from Kubernetes 1.34 on). The API server of the peer would merge them once more, and refuses a key that is in both.
func unmerged(keys []string, selector *metav1.LabelSelector) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		return selector != nil && slices.ContainsFunc(selector.MatchExpressions, func(requirement metav1.LabelSelectorRequirement) bool { return requirement.Key == key })
	})
}

func namesNamespaces(affinity *corev1.PodAntiAffinity) bool {
	names := func(term corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	}
	return slices.ContainsFunc(affinity.RequiredDuringSchedulingIgnoredDuringExecution, names) ||
		slices.ContainsFunc(affinity.PreferredDuringSchedulingIgnoredDuringExecution, func(term corev1.WeightedPodAffinityTerm) bool {
			return names(term.PodAffinityTerm)
		})
}
