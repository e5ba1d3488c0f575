// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestShadowPod: a wish becomes a pod with two writes, and comes back as often as somebody takes it away.
func TestShadowPod(t *testing.T) {
	b := newShadowBed(t)
	stop := b.run()
	s := b.wish("web", corev1.RestartPolicyAlways, nil)
	pod := b.pod(s, nil)
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != s.UID || *pod.Spec.AutomountServiceAccountToken || len(pod.Finalizers) > 0 ||
		pod.Labels[labels.ManagedBy] != labels.ManagedByShadowPod || pod.Labels["app"] != "web" || pod.Annotations["note"] != "1" {
		t.Errorf("pod %+v", pod)
	}
	b.starts(pod)
	b.says(s, vkv1alpha1.ShadowPodRunning, pod)
	if writes := b.writes.Load(); writes != 2 {
		t.Errorf("%d writes from wish to running, want the pod and its phase", writes)
	}

	// Deleted in the provider: its processes end well, and still it has not finished.
	first := pod
	b.Must(b.Delete(t.Context(), pod))
	b.ends(pod, corev1.PodSucceeded)
	pod = b.pod(s, first)
	b.starts(pod)
	b.says(s, vkv1alpha1.ShadowPodRunning, pod)
	// By force.
	second := pod
	b.Must(b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	pod = b.pod(s, second)
	b.starts(pod)
	b.says(s, vkv1alpha1.ShadowPodRunning, pod)

	// A restart writes nothing.
	stop()
	writes := b.writes.Load()
	stop = b.run()
	b.settled("after-restart")
	if got := b.writes.Load() - writes; got != 2 {
		t.Errorf("%d writes, want the one pod that is new, and its phase", got)
	}

	// While nobody looks, the wish is replaced by another: first the old pod goes, then the new one comes.
	stop()
	b.Must(b.Delete(t.Context(), s))
	next := b.wish("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Fence = "next" })
	b.run()
	b.Until("the pod of the old wish is told to go", func() bool { return b.there(pod) && pod.DeletionTimestamp != nil })
	b.ends(pod, corev1.PodSucceeded)
	pod = b.pod(next, pod)
	if metav1.GetControllerOf(pod).UID != next.UID {
		t.Errorf("owner %+v", pod.OwnerReferences)
	}

	// Taken from its owner before that went: nobody else would delete it.
	b.Must(b.Delete(t.Context(), next, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	b.Edit(next, func() { next.Finalizers = nil })
	b.Edit(pod, func() { pod.OwnerReferences = nil })
	b.Until("the orphan goes", func() bool { return !b.there(pod) || pod.DeletionTimestamp != nil })
}

// TestFinishedNeverReruns: what has ended stays ended, also if nobody saw how.
func TestFinishedNeverReruns(t *testing.T) {
	b := newShadowBed(t)
	stop := b.run()
	job := b.wish("job", corev1.RestartPolicyNever, nil)
	pod := b.pod(job, nil)
	if !slices.Contains(pod.Finalizers, labels.FinalizerPodEnd) {
		t.Errorf("finalizers %v", pod.Finalizers)
	}
	b.starts(pod)
	b.phase(pod, corev1.PodSucceeded, "")
	b.says(job, vkv1alpha1.ShadowPodSucceeded, pod)
	b.Must(b.Delete(t.Context(), pod))
	b.Until("the finished pod goes", func() bool { return !b.there(pod) })
	b.Edit(job, func() { job.Annotations["note"] = "2" })
	b.settled("canary-1")
	if b.there(&corev1.Pod{ObjectMeta: pod.ObjectMeta}) {
		t.Error("a finished pod runs again")
	}
	// Nor can anybody make it unfinished.
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Status.Phase = vkv1alpha1.ShadowPodRunning
	if err := b.Status().Update(t.Context(), job); !apierrors.IsInvalid(err) {
		t.Errorf("from Succeeded to Running: %v", err)
	}

	// An evicted pod has finished, even one that restarts for ever: its own cluster replaces it.
	web := b.wish("web", corev1.RestartPolicyAlways, nil)
	evicted := b.pod(web, nil)
	b.starts(evicted)
	b.phase(evicted, corev1.PodFailed, "Evicted")
	b.says(web, vkv1alpha1.ShadowPodFailed, evicted)

	// Finished and deleted while nobody looked.
	unseen := b.wish("unseen", corev1.RestartPolicyOnFailure, nil)
	pod = b.pod(unseen, nil)
	b.starts(pod)
	b.says(unseen, vkv1alpha1.ShadowPodRunning, pod)
	stop()
	b.phase(pod, corev1.PodSucceeded, "")
	b.Must(b.Delete(t.Context(), pod))
	b.Must(b.Delete(t.Context(), evicted, client.GracePeriodSeconds(0)))
	stop = b.run()
	b.says(unseen, vkv1alpha1.ShadowPodSucceeded, pod)
	b.Until("it goes", func() bool { return !b.there(pod) })
	b.settled("canary-2")
	for _, one := range []*corev1.Pod{pod, evicted} {
		if b.there(&corev1.Pod{ObjectMeta: one.ObjectMeta}) {
			t.Errorf("%s runs again", one.Name)
		}
	}

	// Its wish goes first: nobody needs to know how it ends.
	again := b.wish("again", corev1.RestartPolicyNever, nil)
	pod = b.pod(again, nil)
	b.starts(pod)
	b.Must(b.Delete(t.Context(), again))
	b.Must(b.Delete(t.Context(), pod)) // the garbage collector
	b.Until("nothing of ours holds it", func() bool { return b.there(pod) && len(pod.Finalizers) == 0 })
	b.ends(pod, corev1.PodFailed)

	// Given up while it waited for a node.
	waits := b.wish("waits", corev1.RestartPolicyNever, nil)
	pod = b.pod(waits, nil)
	b.Must(b.Delete(t.Context(), pod))
	b.pod(waits, pod)
	stop()
}

// TestAmend: what can change in a pod, changes; what others put there, stays.
func TestAmend(t *testing.T) {
	b := newShadowBed(t)
	b.run()
	s := b.wish("web", corev1.RestartPolicyAlways, nil)
	pod := b.pod(s, nil)
	b.starts(pod)
	b.says(s, vkv1alpha1.ShadowPodRunning, pod)
	b.Edit(pod, func() { pod.Labels["theirs"], pod.Annotations["cni.example.com/address"] = "kept", "10.0.0.1" })
	writes := b.writes.Load()
	b.Edit(s, func() {
		delete(s.Labels, "app")
		s.Labels["tier"], s.Annotations["note"] = "front", "2"
		spec := &s.Spec.Pod
		spec.Containers[0].Image, spec.ActiveDeadlineSeconds = "image:2", new(int64(1000))
		spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
		spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "shell", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}}}
	})
	b.Until("the pod follows", func() bool { return b.there(pod) && pod.Spec.Containers[0].Image == "image:2" })
	if _, there := pod.Labels["app"]; there || pod.Labels["tier"] != "front" || pod.Labels["theirs"] != "kept" || pod.Annotations["note"] != "2" ||
		pod.Annotations["cni.example.com/address"] == "" || *pod.Spec.ActiveDeadlineSeconds != 1000 || len(pod.Spec.EphemeralContainers) != 1 ||
		!slices.ContainsFunc(pod.Spec.Tolerations, func(one corev1.Toleration) bool { return one.Key == "a" }) {
		t.Errorf("pod %+v", pod)
	}
	b.settled("canary")
	if got := b.writes.Load() - writes; got != 4 {
		t.Errorf("%d writes, want ephemeral containers, the rest, and the two of the canary", got)
	}

	// What the API server does not let a pod become is said, and not tried for ever.
	b.Edit(s, func() { s.Spec.Pod.Containers[0].Image = " " })
	b.event(s, "FailedUpdate", "image")
}

// TestShadowStrangers: a pod that is not ours is not touched, whatever its name; what may not be wished for does not become one.
func TestShadowStrangers(t *testing.T) {
	b := newShadowBed(t)
	stranger := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	b.Make(stranger)
	b.run()
	s := b.wish("web", corev1.RestartPolicyAlways, nil)
	b.event(s, "NameTaken", "another pod of the name web")
	version := stranger.ResourceVersion
	b.Edit(s, func() { s.Labels["x"] = "y" })
	b.settled("canary")
	if !b.there(stranger) || stranger.ResourceVersion != version {
		t.Errorf("the stranger's pod: %+v", stranger.ObjectMeta)
	}
	b.Must(b.Delete(t.Context(), stranger, client.GracePeriodSeconds(0)))
	b.pod(s, stranger)

	// The webhook was not there.
	host := b.wish("host", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true })
	b.event(host, "Refused", "hostNetwork")
	foreign := b.wish("foreign", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Labels[labels.Origin] = "milan-id" })
	b.event(foreign, "Refused", "this namespace is cluster rome-id's")
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nobodys"}})
	nobodys := b.wish("nobodys", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Namespace = "nobodys" })
	b.event(nobodys, "Refused", "not made for a peer")

	// What the API server refuses is told on the wish, with its words.
	name := b.wish("name", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Name = "Not_A_Name" })
	b.event(name, "FailedCreate", "Not_A_Name")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: twin}}
	b.Edit(namespace, func() { namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	restricted := b.wish("restricted", corev1.RestartPolicyAlways, nil)
	b.event(restricted, "FailedCreate", "violates PodSecurity")
	b.Edit(namespace, func() { delete(namespace.Labels, "pod-security.kubernetes.io/enforce") })
	b.pod(restricted, nil)

	var pods corev1.PodList
	b.Must(b.List(t.Context(), &pods))
	for i := range pods.Items {
		if name := pods.Items[i].Name; strings.Contains("host foreign nobodys name", name) {
			t.Errorf("pod %s was made", name)
		}
	}
}
