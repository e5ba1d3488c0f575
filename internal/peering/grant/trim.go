// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resources "k8s.io/component-helpers/resource"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
)

// ours is in the key of each of our labels and annotations.
const ours = "liqo.io/"

// TrimPod is a transform function for a cache of pods: it keeps the identity of a pod, its node, its phase, our labels and
// annotations, and its requests, summed up in one container; of a pod of a peer also its addresses and whether it is ready. A pod of the usual size
// shrinks from 6.7 to 2.6 kB. It is idempotent.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // DeletedFinalStateUnknown
	}
	trimmed := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: trimMeta(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if pod.Labels[labels.ManagedBy] == labels.ManagedByShadowPod { // it may be an endpoint of a Service of its peer
		trimmed.Status.PodIPs = pod.Status.PodIPs
		for i := range pod.Status.Conditions {
			if one := &pod.Status.Conditions[i]; one.Type == corev1.PodReady {
				trimmed.Status.Conditions = []corev1.PodCondition{{Type: one.Type, Status: one.Status}}
			}
		}
	}
	// A finished pod uses no resources.
	if !finished(pod) {
		trimmed.Spec.Containers = []corev1.Container{{
			Name: "sum", Resources: corev1.ResourceRequirements{Requests: requests(pod)},
		}}
	}
	if mirror, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		if trimmed.Annotations == nil {
			trimmed.Annotations = map[string]string{}
		}
		trimmed.Annotations[corev1.MirrorPodAnnotationKey] = mirror // read when a node is drained
	}
	return trimmed, nil
}

// TrimNode is a transform function for a cache of nodes: it drops the lists of images and volumes, which are most
// of a node, and annotations that are not ours.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	labels := node.Labels
	trimmed := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: trimMeta(&node.ObjectMeta), Spec: node.Spec, Status: node.Status}
	trimmed.Labels = labels
	trimmed.Status.Images = nil
	trimmed.Status.VolumesInUse = nil
	trimmed.Status.VolumesAttached = nil
	trimmed.Status.Config = nil
	return trimmed, nil
}

func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID,
		ResourceVersion: meta.ResourceVersion, Generation: meta.Generation,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp, DeletionGracePeriodSeconds: meta.DeletionGracePeriodSeconds,
		OwnerReferences: meta.OwnerReferences, Finalizers: meta.Finalizers,
		Labels: keepOurs(meta.Labels), Annotations: keepOurs(meta.Annotations),
	}
}

func keepOurs(all map[string]string) (kept map[string]string) {
	for key, value := range all {
		if strings.Contains(key, ours) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

func finished(pod *corev1.Pod) bool {
	return podphase.Final(pod.Status.Phase)
}

// requests returns what the scheduler reserves for the pod, with resizes and sidecars. All options are on: the status of
// a feature that the cluster has off is empty.
func requests(pod *corev1.Pod) corev1.ResourceList {
	return resources.PodRequests(pod, resources.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
		UseDRANodeAllocatableResourceClaimStatus:       true,
	})
}
