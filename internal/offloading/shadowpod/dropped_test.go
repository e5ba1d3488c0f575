// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestFieldsThatAnAPIServerDrops: a field that the API server of the provider does not have is reported. If the pod would be less isolated without
// it, the pod does not run.
func TestFieldsThatAnAPIServerDrops(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	mounts := func(name string, mount corev1.VolumeMount) *vkv1alpha1.ShadowPod {
		return b.CreateShadowPod(name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			s.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			mount.Name, mount.MountPath = "v", "/v"
			s.Spec.Pod.Containers[0].VolumeMounts = []corev1.VolumeMount{mount}
		})
	}
	// This is the newest field that isolates a pod, and the API server of the tests does not have it.
	less := mounts("less", corev1.VolumeMount{BindMountOptions: []string{"noexec"}})
	b.Event(less, "Refused", "drops bindMountOptions")

	signal := b.CreateShadowPod("signal", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.OS = &corev1.PodOS{Name: corev1.Linux}
		s.Spec.Pod.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)}
	})
	b.Event(signal, "ReflectionIncomplete", "containers[c].lifecycle")
	if pod := b.Pod(signal, nil); pod.Spec.Containers[0].Lifecycle != nil && pod.Spec.Containers[0].Lifecycle.StopSignal != nil {
		t.Fatal("the API server of the tests has stopSignal: choose another field")
	}

	if b.Exists(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: less.Name}}) {
		t.Error("the pod runs, with more rights than it asked for")
	}
	b.Must(b.Delete(t.Context(), less)) // it would be tried again
	b.Until("it is gone", func() bool { return !b.Exists(less) })

	// As long as it cannot be asked for, the pod does not run.
	b.NoTrials.Store(true)
	before := b.Trials.Load()
	later := b.CreateShadowPod("later", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}
	})
	b.Until("it is asked for twice", func() bool { return b.Trials.Load() >= before+2 })
	if b.Exists(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: later.Name}}) {
		t.Error("the pod runs before it is known whether it is as isolated as it asked for")
	}
	b.NoTrials.Store(false)
	b.Pod(later, nil)

	// What it has is asked for once, and costs nothing afterwards.
	var trials []int32
	for _, name := range []string{"first", "second"} {
		before := b.Trials.Load()
		pod := b.Pod(b.CreateShadowPod(name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostUsers = new(false) }), nil)
		if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
			t.Errorf("hostUsers is %v", pod.Spec.HostUsers)
		}
		trials = append(trials, b.Trials.Load()-before)
	}
	if !slices.Equal(trials, []int32{1, 0}) {
		t.Errorf("asked for %d times, want once, for the first pod", trials)
	}
}
