// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

var chartDefaults = quota.Defaults{
	Requests:     corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")},
	Limits:       corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")},
	MemoryVolume: resource.MustParse("64Mi"),
}

// TestAttackNM2: a pod that states nothing requests here what it counts with, so that the scheduler of this cluster reserves it, and its volume in
// memory has a size. A pod that ran before an upgrade stays as it is, whatever changes later.
func TestAttackNM2(t *testing.T) {
	b := shadowtest.New(t)
	b.Make(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "liqo-peer"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: chartDefaults.Limits, DefaultRequest: corev1.ResourceList{"ephemeral-storage": resource.MustParse("0")},
		}}},
	})
	stop := b.Run()
	old := b.CreateShadowPod("old", corev1.RestartPolicyAlways, nil)
	running := b.Pod(old, nil)
	b.StartPod(running)
	stop()

	b.Defaults = chartDefaults
	b.Run()
	idle := b.Pod(b.CreateShadowPod("idle", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		}
	}), nil)
	wanted := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi"), "ephemeral-storage": resource.MustParse("0")},
		Limits:   chartDefaults.Limits,
	}
	if got := idle.Spec.Containers[0].Resources; !equality.Semantic.DeepEqual(got, wanted) {
		t.Errorf("a container that requests nothing has %v, want %v", got, wanted)
	}
	if size := idle.Spec.Volumes[0].EmptyDir.SizeLimit; size == nil || size.Cmp(chartDefaults.MemoryVolume) != 0 {
		t.Errorf("a volume in memory has the size %v", size)
	}
	// The API server accepts a request beyond the default limit, and amounts of the whole pod.
	stored := b.Pod(b.CreateShadowPod("stored", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{"ephemeral-storage": resource.MustParse("2Gi"), "cpu": resource.MustParse("0")}
		s.Spec.Pod.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("0")}
	}), nil)
	if limit := stored.Spec.Containers[0].Resources.Limits["ephemeral-storage"]; limit.Value() != 2<<30 {
		t.Errorf("a container that requests 2Gi of ephemeral storage has the limit %v", limit.String())
	}
	b.Pod(b.CreateShadowPod("whole", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1m")}, Limits: corev1.ResourceList{"cpu": resource.MustParse("1m")},
		}
	}), nil)

	before := running.Spec.Containers[0].Resources
	b.Edit(old, func() { old.Annotations["note"] = "2" })
	b.Until("the annotation has changed", func() bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(running), running))
		return running.Annotations[labels.ShadowPodRevision] == shadow.Revision(old)
	})
	if got := running.Spec.Containers[0].Resources; running.DeletionTimestamp != nil ||
		running.Annotations["note"] != "2" || !equality.Semantic.DeepEqual(got, before) {
		t.Errorf("the pod from before has note %q and %v, before %v", running.Annotations["note"], got, before)
	}
}
