// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// observedGeneration returns which generation of the local pod the kubelet of the peer has observed: the one that the remote pod has, if the kubelet has
// observed the remote pod as it is now, and what the local pod shows otherwise. Kubernetes before 1.34 has no generation of pods; then it is zero.
func observedGeneration(local, remote *corev1.Pod) int64 {
	mine, theirs := local.Status.ObservedGeneration, remote.Status.ObservedGeneration
	if local.Generation <= 0 || theirs <= 0 {
		return mine
	}
	if theirs < remote.Generation {
		return mine
	}
	return max(min(HasGeneration(remote), local.Generation), mine)
}

// HasGeneration returns which generation of its local pod a ShadowPod or a remote pod has.
func HasGeneration(remote metav1.Object) int64 {
	if has, err := strconv.ParseInt(remote.GetAnnotations()[labels.LocalGeneration], 10, 64); err == nil && has > 0 {
		return has
	}
	return 1
}

// WithGeneration returns a remote pod that has another generation of its local pod.
func WithGeneration(remote *corev1.Pod, generation int64) *corev1.Pod {
	changed := *remote
	changed.Annotations = maps.Clone(remote.Annotations)
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[labels.LocalGeneration] = strconv.FormatInt(generation, 10)
	return &changed
}

// conditionGeneration translates the generation that a condition of the remote pod is about. What is about an earlier one there is about an earlier one here.
// If it is not known, the one that the local pod shows stays, as the API server keeps it, too.
func conditionGeneration(theirs corev1.PodCondition, local, remote *corev1.Pod, observed int64) int64 {
	switch {
	case theirs.ObservedGeneration <= 0 || observed <= 0:
		at := slices.IndexFunc(local.Status.Conditions, func(mine corev1.PodCondition) bool { return mine.Type == theirs.Type })
		if at < 0 {
			return 0
		}
		return local.Status.Conditions[at].ObservedGeneration
	case theirs.ObservedGeneration >= remote.Generation:
		return observed
	}
	return max(observed-1, 1)
}

// WithGenerationsOf returns a status with the observed generations that the local pod shows, for an API server that does not
// keep them: each comparison would find them missing.
func WithGenerationsOf(local *corev1.Pod, status *corev1.PodStatus) *corev1.PodStatus {
	as := *status
	as.ObservedGeneration, as.Conditions = local.Status.ObservedGeneration, slices.Clone(status.Conditions)
	for i := range as.Conditions {
		condition := &as.Conditions[i]
		condition.ObservedGeneration = 0
		if at := slices.IndexFunc(local.Status.Conditions, func(mine corev1.PodCondition) bool { return mine.Type == condition.Type }); at >= 0 {
			condition.ObservedGeneration = local.Status.Conditions[at].ObservedGeneration
		}
	}
	return &as
}
