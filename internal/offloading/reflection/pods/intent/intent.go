// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
)

// Part is a part of a change that the peer may refuse while it accepts the others. Otherwise a refused part would keep all later changes of the pod from the
// peer: an ephemeral container cannot even be removed from a pod.
type Part string

// The parts, with what their refusal means for the pod.
const (
	Ephemeral Part = "the pod runs without its new ephemeral containers in the remote cluster"
	Resources Part = "the pod keeps its CPU and memory in the remote cluster"
)

// Recall is Applier.Recall. The finalizer of an intent may also have been added by the webhook of the peer, so that we do not own it.
func Recall(applier *ssa.Applier, intent *vkapply.ShadowPodApplyConfiguration, shadow client.Object) (held bool, err error) {
	if held, err = applier.Recall(intent, shadow); held || err != nil || len(intent.Finalizers) == 0 {
		return held, err
	}
	added, metadata := *intent, *intent.ObjectMetaApplyConfiguration
	metadata.Finalizers = nil
	added.ObjectMetaApplyConfiguration = &metadata
	return applier.Recall(&added, shadow)
}

// RecallAmended recalls a ShadowPod that has of an intent what an existing one gets. It then satisfies the whole intent.
func RecallAmended(applier *ssa.Applier, intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) error {
	held, err := Recall(applier, Amended(intent, full), full)
	if held {
		applier.Satisfies(intent)
	}
	return err
}

// Amended returns the intent for an existing ShadowPod: only what Kubernetes lets change of a pod follows the local pod.
func Amended(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) *vkapply.ShadowPodApplyConfiguration {
	changed, metadata := *intent, *intent.ObjectMetaApplyConfiguration
	spec := podspec.Amended(&full.Spec.Pod, intent.Spec.Pod)
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*spec)
	metadata.Annotations = podspec.WithoutUnread(metadata.Annotations, spec)
	changed.ObjectMetaApplyConfiguration = &metadata
	// The UID is a precondition: if the ShadowPod has just been deleted, applying a change must not create it again, since its pod may have ended.
	return changed.WithUID(full.UID)
}

// PartsOf returns the parts of a change.
func PartsOf(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) (parts []Part) {
	desired := full.DeepCopy()
	desired.Spec.Pod = *intent.Spec.Pod
	if len(desired.Spec.Pod.EphemeralContainers) > len(full.Spec.Pod.EphemeralContainers) {
		parts = append(parts, Ephemeral)
	}
	if shadow.Resized(full, desired) {
		parts = append(parts, Resources)
	}
	return parts
}

// Without returns the intent with what the ShadowPod has, instead of some parts.
func Without(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod, parts []Part) *vkapply.ShadowPodApplyConfiguration {
	if len(parts) == 0 {
		return intent
	}
	pod, had := intent.Spec.Pod.DeepCopy(), &full.Spec.Pod
	for _, part := range parts {
		switch part {
		case Ephemeral:
			pod.EphemeralContainers = had.EphemeralContainers
		case Resources:
			for i := range pod.Containers {
				pod.Containers[i].Resources = had.Containers[i].Resources
			}
			for i := range pod.InitContainers {
				pod.InitContainers[i].Resources = had.InitContainers[i].Resources
			}
			pod.Resources = had.Resources
		}
	}
	changed, metadata := *intent, *intent.ObjectMetaApplyConfiguration
	if metadata.Annotations = maps.Clone(metadata.Annotations); full.Annotations[labels.LocalGeneration] != "" {
		metadata.Annotations[labels.LocalGeneration] = full.Annotations[labels.LocalGeneration]
	} else {
		delete(metadata.Annotations, labels.LocalGeneration) // the peer does not have that generation
	}
	changed.ObjectMetaApplyConfiguration = &metadata
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*pod)
	return &changed
}

// WithClaims has a pod use the claims of the peer that have its data. Those that Kubernetes made here for its ephemeral volumes become ordinary ones: in the
// peer, Kubernetes would make others, which belong to the pod there.
func WithClaims(local *corev1.Pod, intent *vkapply.ShadowPodApplyConfiguration, nameThere func(namespace, claim string) (string, bool)) {
	for i := range intent.Spec.Pod.Volumes {
		volume := &intent.Spec.Pod.Volumes[i]
		switch {
		case volume.Ephemeral != nil:
			if remote, ok := nameThere(local.Namespace, local.Name+"-"+volume.Name); ok {
				volume.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: remote}}
			}
		case volume.PersistentVolumeClaim != nil:
			if remote, ok := nameThere(local.Namespace, volume.PersistentVolumeClaim.ClaimName); ok && remote != volume.PersistentVolumeClaim.ClaimName {
				renamed := *volume.PersistentVolumeClaim // shared with the local pod
				renamed.ClaimName, volume.PersistentVolumeClaim = remote, &renamed
			}
		}
	}
}

// Affects reports whether a change of a local pod concerns its ShadowPod. The status that we write ourselves does not.
func Affects(old, now *corev1.Pod) bool {
	return old.Generation != now.Generation || now.Generation == 0 || podphase.Final(old.Status.Phase) != podphase.Final(now.Status.Phase) ||
		(old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || !reflect.DeepEqual(old.DeletionGracePeriodSeconds, now.DeletionGracePeriodSeconds) ||
		!equalExcept(old.Labels, now.Labels, labels.ShadowPod) || !equalExcept(old.Annotations, now.Annotations, "") ||
		old.Status.PodIP != now.Status.PodIP && podspec.ReadsAddress(now)
}

func equalExcept(a, b map[string]string, except string) bool {
	count := func(all map[string]string) int {
		if _, ok := all[except]; ok {
			return len(all) - 1
		}
		return len(all)
	}
	for key, value := range a {
		if other, ok := b[key]; key != except && (!ok || other != value) {
			return false
		}
	}
	return count(a) == count(b)
}
