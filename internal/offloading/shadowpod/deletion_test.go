// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestShadowPodDeletion: without a garbage collector, which the test does not run, a ShadowPod that is deleted in the foreground takes its pod along and
// stays until the pod is gone.
func TestShadowPodDeletion(t *testing.T) {
	b := shadowtest.New(t)
	b.Ahead.Store(0)
	stop := b.Run()
	remove := func(s *vkv1alpha1.ShadowPod) {
		b.Must(b.Delete(t.Context(), s, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	}
	terminates := func(pod *corev1.Pod) {
		b.Until("pod "+pod.Name+" terminates", func() bool { return b.Exists(pod) && pod.DeletionTimestamp != nil })
	}
	gone := func(s *vkv1alpha1.ShadowPod) {
		b.Until("ShadowPod "+s.Name+" is gone", func() bool { return !b.Exists(s) })
	}
	running := func(name string, policy corev1.RestartPolicy, change func(*vkv1alpha1.ShadowPod)) (*vkv1alpha1.ShadowPod, *corev1.Pod) {
		s := b.CreateShadowPod(name, policy, change)
		pod := b.Pod(s, nil)
		b.StartPod(pod)
		return s, pod
	}

	// It has its own grace period, and the name is taken until it is over.
	keepsName := func(name string, how metav1.DeletionPropagation, finalizers ...string) *corev1.Pod {
		s, pod := running(name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			s.Finalizers, s.Spec.Pod.TerminationGracePeriodSeconds = finalizers, new(int64(77))
		})
		b.DrainQueue(name + "-before")
		writes := b.Writes.Load()
		b.Must(b.Delete(t.Context(), s, client.PropagationPolicy(how)))
		terminates(pod)
		if *pod.DeletionGracePeriodSeconds != 77 {
			t.Errorf("%s: grace period %d", name, *pod.DeletionGracePeriodSeconds)
		}
		b.Phase(pod, corev1.PodSucceeded, "")
		b.DrainQueue(name + "-meanwhile")
		if !b.Exists(s) {
			t.Errorf("ShadowPod %s is gone before its pod", name)
		}
		b.EndPod(pod, corev1.PodSucceeded)
		gone(s)
		if got := b.Writes.Load() - writes; got != 4 {
			t.Errorf("%s: %d writes, want the deletion, the finalizer, and two of the canary", name, got)
		}
		return pod
	}
	pod := keepsName("web", metav1.DeletePropagationForeground)
	// With our finalizer, which the webhook adds, it is deleted in the background, so that the garbage collector has nothing to do.
	keepsName("ours", metav1.DeletePropagationBackground, labels.FinalizerPodGone)

	next := b.CreateShadowPod("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Fence = "next" })
	b.Pod(next, pod)

	// A pod without a node is deleted at once.
	remove(next)
	gone(next)

	// Our own finalizer on a pod delays nothing. Without its owner reference, the garbage collector would not know the pod.
	job, pod := running("job", corev1.RestartPolicyNever, nil)
	b.Edit(pod, func() { pod.OwnerReferences = nil })
	remove(job)
	terminates(pod)
	b.Until("our finalizer is removed", func() bool { return b.Exists(pod) && !slices.Contains(pod.Finalizers, labels.FinalizerPodEnd) })
	b.EndPod(pod, corev1.PodFailed)
	gone(job)

	// A finalizer of others stays, on the pod and on the ShadowPod.
	held, pod := running("held", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{"example.com/theirs"} })
	b.Edit(pod, func() { pod.Finalizers = []string{"example.com/of-pod"} })
	remove(held)
	terminates(pod)
	b.EndPod(pod, corev1.PodFailed)
	b.DrainQueue("held-pod")
	if !b.Exists(held) || !slices.Contains(held.Finalizers, metav1.FinalizerDeleteDependents) {
		t.Errorf("finalizers %v while the pod exists", held.Finalizers)
	}
	b.Edit(pod, func() { pod.Finalizers = nil })
	b.Until("only their finalizer is left", func() bool { return b.Exists(held) && slices.Equal(held.Finalizers, []string{"example.com/theirs"}) })
	b.Edit(held, func() { held.Finalizers = nil })
	gone(held)

	// Someone else deletes it in the foreground: both finalizers go at once.
	both, pod := running("both", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{labels.FinalizerPodGone} })
	remove(both)
	terminates(pod)
	b.EndPod(pod, corev1.PodSucceeded)
	gone(both)

	// What never had a pod: refused.
	refused := b.CreateShadowPod("refused", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true })
	b.Event(refused, "Refused", "hostNetwork")
	remove(refused)
	gone(refused)

	// A leader that starts in the middle: one pod terminates, one is gone, one runs.
	middle, midPod := running("middle", corev1.RestartPolicyNever, nil)
	late, latePod := running("late", corev1.RestartPolicyAlways, nil)
	unseen, unseenPod := running("unseen", corev1.RestartPolicyAlways, nil)
	remove(middle)
	remove(late)
	terminates(midPod)
	terminates(latePod)
	stop()
	remove(unseen)
	b.EndPod(latePod, corev1.PodSucceeded)
	b.Run()
	gone(late)
	terminates(unseenPod)
	for _, entry := range []*corev1.Pod{midPod, unseenPod} {
		b.Read(entry)
		b.EndPod(entry, corev1.PodSucceeded)
	}
	gone(middle)
	gone(unseen)

	// An unmanaged pod that has the name is left alone.
	theirs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "theirs"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	b.Make(theirs)
	taken := b.CreateShadowPod("theirs", corev1.RestartPolicyAlways, nil)
	b.Event(taken, "NameTaken", "another pod")
	remove(taken)
	gone(taken)
	if b.Read(theirs); theirs.DeletionTimestamp != nil {
		t.Error("an unmanaged pod is deleted")
	}
}

// TestShadowPodPeriod: the grace period with which the consumer deletes a pod is that of the remote pod, also if it is shortened while the pod ends. No period
// lets go of the name while processes may run.
func TestShadowPodPeriod(t *testing.T) {
	b := shadowtest.New(t)
	b.Ahead.Store(0)
	b.Run()
	announce := func(s *vkv1alpha1.ShadowPod, period string) {
		b.Edit(s, func() { s.Annotations[labels.DeletionPeriod] = period })
	}
	for _, c := range []struct {
		name              string
		manifest          int64
		first, second     string
		period, shortened int64
	}{
		{"ordinary", 77, "", "", 77, 77},
		{"shorter", 600, "3", "", 3, 3},
		{"longer", 3, "600", "", 600, 600},
		{"forced", 600, "0", "", 1, 1},
		{"shortened", 600, "", "3", 600, 3},
		{"twice", 600, "60", "3", 60, 3},
		{"now", 600, "60", "0", 60, 1},
		{"lengthened", 600, "3", "60", 3, 3},
		{"none", 0, "", "", 1, 1},
		{"hostile", 60, "99999999999999999999", "-1", 60, 60},
	} {
		s := b.CreateShadowPod(c.name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			s.Finalizers, s.Spec.Pod.TerminationGracePeriodSeconds = []string{labels.FinalizerPodGone}, &c.manifest
		})
		pod := b.Pod(s, nil)
		b.StartPod(pod)
		if c.first != "" {
			announce(s, c.first)
		}
		b.Must(b.Delete(t.Context(), s))
		b.Until(c.name+" terminates", func() bool { return b.Exists(pod) && pod.DeletionTimestamp != nil })
		if got := *pod.DeletionGracePeriodSeconds; got != c.period {
			t.Errorf("%s: grace period %d, want %d", c.name, got, c.period)
		}
		if c.second != "" {
			announce(s, c.second)
		}
		if c.shortened != c.period {
			b.Until(c.name+" is shortened", func() bool { return b.Exists(pod) && *pod.DeletionGracePeriodSeconds == c.shortened })
		}
		b.DrainQueue(c.name + "-meanwhile")
		if !b.Exists(pod) || *pod.DeletionGracePeriodSeconds != c.shortened || pod.Annotations[labels.DeletionPeriod] != "" {
			t.Errorf("%s: grace period %d, want %d, annotations %v", c.name, *pod.DeletionGracePeriodSeconds, c.shortened, pod.Annotations)
		}
		b.EndPod(pod, corev1.PodSucceeded)
		b.Until(c.name+" is gone", func() bool { return !b.Exists(s) })
	}
}
