// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

// TestAttackNM3: if this cluster pulls images always, a peer cannot have a pod run what another pod has brought to a node, whatever the ShadowPod asks for.
func TestAttackNM3(t *testing.T) {
	asked := &vkv1alpha1.ShadowPod{}
	asked.Spec.Pod = corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "first", Image: "registry.provider.example/billing:1", ImagePullPolicy: corev1.PullNever}},
		Containers: []corev1.Container{
			{Name: "main", Image: "registry.provider.example/billing:1", ImagePullPolicy: corev1.PullIfNotPresent}, {Name: "other", Image: "image"},
		},
		Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "image", PullPolicy: corev1.PullNever}}},
			{Name: "e", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{},
			}},
		},
	}
	before := asked.DeepCopy()
	pod := Pod(asked, "rome", metadata.Allowed{AlwaysPull: true})
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if container.ImagePullPolicy != corev1.PullAlways {
			t.Errorf("container %s has the policy %q", container.Name, container.ImagePullPolicy)
		}
	}
	if policy := pod.Spec.Volumes[0].Image.PullPolicy; policy != corev1.PullAlways {
		t.Errorf("the image volume has the policy %q", policy)
	}
	free := Pod(asked, "rome", metadata.Allowed{})
	if free.Spec.InitContainers[0].ImagePullPolicy != corev1.PullNever || free.Spec.Volumes[0].Image.PullPolicy != corev1.PullNever ||
		before.Spec.Pod.Containers[0].ImagePullPolicy != asked.Spec.Pod.Containers[0].ImagePullPolicy {
		t.Error("without that, the pod does not have what its ShadowPod asks for, or the ShadowPod was changed")
	}

	asked.Spec.Pod.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "image", ImagePullPolicy: corev1.PullNever}},
	}
	for _, want := range []struct {
		allowed metadata.Allowed
		policy  corev1.PullPolicy
	}{{metadata.Allowed{AlwaysPull: true}, corev1.PullAlways}, {metadata.Allowed{}, corev1.PullNever}} {
		patches := Amend(asked, pod, "rome", "us", want.allowed)
		added, is := patches.Ephemeral[1].Value.([]any)
		if container, ok := added[0].(corev1.EphemeralContainer); !is || !ok || container.ImagePullPolicy != want.policy {
			t.Errorf("%+v: the ephemeral container is %+v, want the policy %s", want.allowed, added, want.policy)
		}
	}
	if patches := Amend(before, pod, "rome", "us", metadata.Allowed{AlwaysPull: true}); patches.Rest != nil || patches.Ephemeral != nil {
		t.Errorf("the pod is changed for its pull policy: %+v", patches)
	}
}
