// SPDX-License-Identifier: Apache-2.0

package project

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// ofOne are labels that differ between the pods of one application, so that they tell nothing about who is alike.
var ofOne = Keys{
	appsv1.ControllerRevisionHashLabelKey, appsv1.DefaultDeploymentUniqueLabelKey,
	appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, batchv1.JobCompletionIndexAnnotation,
}

// affinity is what a pod has in the peer: none, because the nodes that its own tells of are those of this cluster, unless the
// annotation asks to be kept apart from its like. all are the labels that it has in the peer.
func affinity(local *corev1.Pod, all map[string]string) (*corev1.Affinity, error) {
	preset, asked := local.Annotations[labels.AntiAffinityPreset]
	if !asked {
		return nil, nil
	}
	if preset == labels.AntiAffinityPropagate {
		if local.Spec.Affinity == nil || local.Spec.Affinity.PodAntiAffinity == nil {
			return nil, nil
		}
		propagated := local.Spec.Affinity.PodAntiAffinity.DeepCopy()
		if namesNamespaces(propagated) {
			return nil, refused("annotation "+labels.AntiAffinityPreset, preset,
				"the podAntiAffinity names namespaces, which are of this cluster: let it speak of pods of its own namespace only")
		}
		return &corev1.Affinity{PodAntiAffinity: propagated}, nil
	}
	if preset != labels.AntiAffinitySoft && preset != labels.AntiAffinityHard {
		return nil, refused("annotation "+labels.AntiAffinityPreset, preset, "use soft, hard or propagate")
	}
	alike, err := alike(local, all)
	if err != nil {
		return nil, err
	}
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: alike}}
	if preset == labels.AntiAffinityHard {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}, nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}},
	}}, nil
}

// alike are the labels whose values tell a pod's like. No labels would mean all pods of the namespace, which nobody asked for.
func alike(local *corev1.Pod, all map[string]string) (map[string]string, error) {
	listed, only := local.Annotations[labels.AntiAffinityLabels]
	if !only {
		alike := copied(all, ofOne)
		if len(alike) == 0 {
			return nil, refused("annotation "+labels.AntiAffinityPreset, local.Annotations[labels.AntiAffinityPreset],
				"the pod has no label that others of its kind have, too: give it one")
		}
		return alike, nil
	}
	keys := strings.Split(listed, ",")
	for i := range keys {
		keys[i] = strings.TrimSpace(keys[i])
	}
	alike := copied(all, nil)
	for key := range all {
		if !slices.Contains(keys, key) {
			delete(alike, key)
		}
	}
	if len(alike) == 0 {
		return nil, refused("annotation "+labels.AntiAffinityLabels, listed, "name labels that the pod has, with commas between")
	}
	return alike, nil
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
