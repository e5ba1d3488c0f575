// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// withoutManagedFields removes the managed fields of a pod that a controller creates, and reports whether it had any that are not needed.
func withoutManagedFields(pod *corev1.Pod, spec *offloadingv1alpha1.NamespaceOffloadingSpec) bool {
	if spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal || !needsNoManagedFields(pod) {
		return false
	}
	pod.ManagedFields = nil
	return true
}

// needsNoManagedFields reports whether a new pod has managed fields and needs none. Without them, the API server keeps none for it from then on, and
// writes and sends less: a third of the bytes, and two thirds of the processor time for each status. Only server-side apply reads managed fields of
// pods. A controller that creates its pods with that keeps them, and so does the user who creates a pod himself. Package shadow reads there which
// keys of a pod come from its ShadowPod if the pod does not record them.
func needsNoManagedFields(pod metav1.Object) bool {
	applied := func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationApply
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || len(pod.GetManagedFields()) == 0 || slices.ContainsFunc(pod.GetManagedFields(), applied) {
		return false
	}
	_, recorded := pod.GetAnnotations()[labels.ShadowPodKeys]
	return recorded || owner.Kind != "ShadowPod"
}

// dropRemote removes the managed fields of a new pod of a ShadowPod.
var dropRemote = byMetadata(
	func(pod *metav1.PartialObjectMetadata) bool { return needsNoManagedFields(pod) },
	[]byte(`[{"op":"remove","path":"/metadata/managedFields"}]`),
)
