// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestShadowPod: a ShadowPod gets its pod with one write, its phase with another one a minute later, and a new pod whenever the pod is deleted.
func TestShadowPod(t *testing.T) {
	b := shadowtest.New(t)
	b.Ahead.Store(0)
	stop := b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	pod := b.Pod(s, nil)
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != s.UID || *pod.Spec.AutomountServiceAccountToken || len(pod.Finalizers) > 0 ||
		pod.Labels[labels.ManagedBy] != labels.ManagedByShadowPod || pod.Labels["app"] != "web" || pod.Annotations["note"] != "1" {
		t.Errorf("pod %+v", pod)
	}
	b.StartPod(pod)
	b.DrainQueue("while-it-is-new")
	if writes := b.Writes.Load(); writes != 3 || !b.Exists(s) || s.Status != (vkv1alpha1.ShadowPodStatus{}) {
		t.Errorf("%d writes until it runs, want the pod, and the two of the other one; status %+v", writes, s.Status)
	}
	b.Ahead.Store(int64(time.Minute))
	b.Edit(pod, func() { pod.Labels["theirs"] = "changed" }) // an event; without one, it is the end of the minute
	b.UntilPhase(s, vkv1alpha1.ShadowPodRunning, pod)
	if writes := b.Writes.Load(); writes != 4 {
		t.Errorf("%d writes, want one more for the phase", writes)
	}

	// Deleted in the provider: its processes succeed, but the pod has not finished.
	first := pod
	b.Must(b.Delete(t.Context(), pod))
	b.EndPod(pod, corev1.PodSucceeded)
	pod = b.Pod(s, first)
	b.StartPod(pod)
	b.UntilPhase(s, vkv1alpha1.ShadowPodRunning, pod)
	// Deleted without grace period.
	second := pod
	b.Must(b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	pod = b.Pod(s, second)
	b.StartPod(pod)
	b.UntilPhase(s, vkv1alpha1.ShadowPodRunning, pod)

	// A restart writes nothing.
	stop()
	writes := b.Writes.Load()
	stop = b.Run()
	b.DrainQueue("after-restart")
	if got := b.Writes.Load() - writes; got != 2 {
		t.Errorf("%d writes, want the one pod that is new, and its phase", got)
	}

	// While the controller is down, another ShadowPod takes the name: the old pod is deleted before the new one is created.
	stop()
	b.Must(b.Delete(t.Context(), s))
	next := b.CreateShadowPod("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Fence = "next" })
	b.Run()
	b.Until("the pod of the old ShadowPod is deleted", func() bool { return b.Exists(pod) && pod.DeletionTimestamp != nil })
	b.EndPod(pod, corev1.PodSucceeded)
	pod = b.Pod(next, pod)
	if metav1.GetControllerOf(pod).UID != next.UID {
		t.Errorf("owner %+v", pod.OwnerReferences)
	}

	// Its owner reference is removed before the owner: the garbage collector would not delete it.
	b.Must(b.Delete(t.Context(), next, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	b.Edit(next, func() { next.Finalizers = nil })
	b.Edit(pod, func() { pod.OwnerReferences = nil })
	b.Until("the orphan is deleted", func() bool { return !b.Exists(pod) || pod.DeletionTimestamp != nil })
}

// TestFinishedNeverReruns: a pod that has ended is never created again, even if the controller was down when it ended.
func TestFinishedNeverReruns(t *testing.T) {
	b := shadowtest.New(t)
	stop := b.Run()
	job := b.CreateShadowPod("job", corev1.RestartPolicyNever, nil)
	pod := b.Pod(job, nil)
	if !slices.Contains(pod.Finalizers, labels.FinalizerPodEnd) {
		t.Errorf("finalizers %v", pod.Finalizers)
	}
	b.StartPod(pod)
	b.Phase(pod, corev1.PodSucceeded, "")
	b.UntilPhase(job, vkv1alpha1.ShadowPodSucceeded, pod)
	b.Must(b.Delete(t.Context(), pod))
	b.Until("the finished pod is gone", func() bool { return !b.Exists(pod) })
	b.Edit(job, func() { job.Annotations["note"] = "2" })
	b.DrainQueue("canary-1")
	if b.Exists(&corev1.Pod{ObjectMeta: pod.ObjectMeta}) {
		t.Error("a finished pod runs again")
	}
	// The API server refuses to undo the phase.
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Status.Phase = vkv1alpha1.ShadowPodRunning
	if err := b.Status().Update(t.Context(), job); !apierrors.IsInvalid(err) {
		t.Errorf("from Succeeded to Running: %v", err)
	}

	// An evicted pod has finished, even one that restarts for ever: its own cluster replaces it.
	web := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	evicted := b.Pod(web, nil)
	b.StartPod(evicted)
	b.Phase(evicted, corev1.PodFailed, "Evicted")
	b.UntilPhase(web, vkv1alpha1.ShadowPodFailed, evicted)

	// Finished and deleted while the controller is down.
	unseen := b.CreateShadowPod("unseen", corev1.RestartPolicyOnFailure, nil)
	pod = b.Pod(unseen, nil)
	b.StartPod(pod)
	b.UntilPhase(unseen, vkv1alpha1.ShadowPodRunning, pod)
	stop()
	b.Phase(pod, corev1.PodSucceeded, "")
	b.Must(b.Delete(t.Context(), pod))
	b.Must(b.Delete(t.Context(), evicted, client.GracePeriodSeconds(0)))
	stop = b.Run()
	b.UntilPhase(unseen, vkv1alpha1.ShadowPodSucceeded, pod)
	b.Until("the pod is gone", func() bool { return !b.Exists(pod) })
	b.DrainQueue("canary-2")
	for _, gone := range []*corev1.Pod{pod, evicted} {
		if b.Exists(&corev1.Pod{ObjectMeta: gone.ObjectMeta}) {
			t.Errorf("%s runs again", gone.Name)
		}
	}

	// Its ShadowPod is deleted first: its end need not be recorded.
	again := b.CreateShadowPod("again", corev1.RestartPolicyNever, nil)
	pod = b.Pod(again, nil)
	b.StartPod(pod)
	b.Must(b.Delete(t.Context(), again))
	b.Must(b.Delete(t.Context(), pod)) // the garbage collector
	b.Until("our finalizer is removed", func() bool { return b.Exists(pod) && len(pod.Finalizers) == 0 })
	b.EndPod(pod, corev1.PodFailed)

	// Deleted while it waited for a node.
	waits := b.CreateShadowPod("waits", corev1.RestartPolicyNever, nil)
	pod = b.Pod(waits, nil)
	b.Must(b.Delete(t.Context(), pod))
	b.Pod(waits, pod)
	stop()
}

// TestAmend: mutable fields of the pod follow the ShadowPod; changes of other clients stay. The pod has no managed fields, which the webhook removes.
func TestAmend(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	pod := b.Pod(s, nil)
	b.StartPod(pod)
	b.UntilPhase(s, vkv1alpha1.ShadowPodRunning, pod)
	b.Edit(pod, func() {
		pod.Labels["theirs"], pod.Annotations["cni.example.com/address"] = "kept", "10.0.0.1"
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	})
	if len(pod.ManagedFields) > 0 {
		t.Fatalf("managed fields %v", pod.ManagedFields)
	}
	writes := b.Writes.Load()
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
	b.Until("the pod follows", func() bool { return b.Exists(pod) && pod.Spec.Containers[0].Image == "image:2" })
	if _, exists := pod.Labels["app"]; exists || pod.Labels["tier"] != "front" || pod.Labels["theirs"] != "kept" || pod.Annotations["note"] != "2" ||
		pod.Annotations["cni.example.com/address"] == "" || *pod.Spec.ActiveDeadlineSeconds != 1000 || len(pod.Spec.EphemeralContainers) != 1 ||
		!slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool { return toleration.Key == "a" }) {
		t.Errorf("pod %+v", pod)
	}
	b.DrainQueue("canary")
	if got := b.Writes.Load() - writes; got != 4 {
		t.Errorf("%d writes, want ephemeral containers, the rest, and the two of the canary", got)
	}

	// A change that the API server refuses is reported, and not retried for ever.
	b.Edit(s, func() { s.Spec.Pod.Containers[0].Image = " " })
	b.Event(s, "FailedUpdate", "image")

	// An ephemeral container that the API server refuses cannot be removed from the ShadowPod. It keeps no other change from the pod.
	b.Edit(s, func() {
		s.Spec.Pod.Containers[0].Image = "image:3"
		s.Spec.Pod.EphemeralContainers = append(s.Spec.Pod.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: s.Spec.Pod.Containers[0].Name, Image: "shell", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}})
	})
	b.Until("the image follows", func() bool { return b.Exists(pod) && pod.Spec.Containers[0].Image == "image:3" })
}

// TestResize: CPU and memory of a running pod follow the ShadowPod, within the grant, and with nothing but the right to patch the subresource. What is
// refused delays no other change.
func TestResize(t *testing.T) {
	b := shadowtest.New(t)
	quota := &fakeQuota{}
	quota.open.Store(true)
	b.Quota = quota
	stop := b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}, Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
		}
	})
	pod := b.Pod(s, nil)
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "physical"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("9"), // the API server compares a resize with that
	}}})
	b.StartPod(pod)
	b.UntilPhase(s, vkv1alpha1.ShadowPodRunning, pod)
	uid, reserved, writes := pod.UID, quota.reserved.Load(), b.Writes.Load()
	b.Edit(s, func() {
		s.Spec.Pod.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")},
		}
	})
	has := func(cpu, memory string) bool {
		now := pod.Spec.Containers[0].Resources
		return b.Exists(pod) && now.Requests.Cpu().Cmp(resource.MustParse(cpu)) == 0 && now.Limits.Memory().Cmp(resource.MustParse(memory)) == 0
	}
	b.Until("the pod has its new size", func() bool { return has("1500m", "2Gi") })
	b.DrainQueue("canary")
	if got := b.Writes.Load() - writes; pod.UID != uid || got != 4 || quota.reserved.Load() != reserved+2 { // the canary reserves, and is created
		t.Errorf("%d writes, %d reservations, want the resize, the rest, and two of the canary", got, quota.reserved.Load()-reserved)
	}

	// Beyond the grant, the pod keeps its size; a label of the same update follows.
	quota.open.Store(false)
	b.Edit(s, func() {
		s.Labels["tier"] = "front"
		s.Spec.Pod.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1700m")
	})
	b.Event(s, "Refused", "10 of 10 granted")
	b.Until("the label follows", func() bool { return b.Exists(pod) && pod.Labels["tier"] == "front" })
	if !has("1500m", "2Gi") {
		t.Errorf("resources %+v", pod.Spec.Containers[0].Resources)
	}
	// Once the grant has that much left, the pod gets its size. The cluster's own rules still decide.
	quota.open.Store(true)
	b.Until("the pod has the size that was refused", func() bool { return has("1700m", "2Gi") })
	b.Make(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "most"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": resource.MustParse("3Gi")},
		}}},
	})
	b.Edit(s, func() { s.Spec.Pod.Containers[0].Resources.Limits["memory"] = resource.MustParse("4Gi") })
	b.Event(s, "FailedUpdate", "maximum memory usage per Container is 3Gi")
	if !has("1700m", "2Gi") {
		t.Errorf("resources %+v", pod.Spec.Containers[0].Resources)
	}
	b.Edit(s, func() { s.Spec.Pod.Containers[0].Resources.Limits["memory"] = resource.MustParse("1Gi") })
	b.Until("the pod is smaller", func() bool { return has("1700m", "1Gi") })

	// A restart of the controllers changes nothing.
	b.DrainQueue("settled")
	b.Read(pod)
	stop()
	version := pod.ResourceVersion
	b.Run()
	b.DrainQueue("restarted")
	if b.Read(pod); pod.ResourceVersion != version {
		t.Error("a restart of the controllers changed the pod")
	}
}

// TestShadowUnmanaged: an unmanaged pod is not touched, whatever its name; a ShadowPod that is not allowed gets no pod.
func TestShadowUnmanaged(t *testing.T) {
	b := shadowtest.New(t)
	unmanaged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	b.Make(unmanaged)
	b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	b.Event(s, "NameTaken", "another pod of the name web")
	version := unmanaged.ResourceVersion
	b.Edit(s, func() { s.Labels["x"] = "y" })
	b.DrainQueue("canary")
	if !b.Exists(unmanaged) || unmanaged.ResourceVersion != version {
		t.Errorf("the unmanaged pod: %+v", unmanaged.ObjectMeta)
	}
	b.Must(b.Delete(t.Context(), unmanaged, client.GracePeriodSeconds(0)))
	b.Pod(s, unmanaged)

	// Written while the webhook was down.
	host := b.CreateShadowPod("host", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true })
	b.Event(host, "Refused", "hostNetwork")
	foreign := b.CreateShadowPod("foreign", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Labels[labels.Origin] = "milan-id" })
	b.Event(foreign, "Refused", "this namespace is cluster rome-id's")
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unowned"}})
	unowned := b.CreateShadowPod("unowned", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Namespace = "unowned" })
	b.Event(unowned, "Refused", "not created for a peer")

	// A refusal of the API server is reported with its message.
	name := b.CreateShadowPod("name", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Name = "Not_A_Name" })
	b.Event(name, "FailedCreate", "Not_A_Name")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shadowtest.RemoteNamespace}}
	b.Edit(namespace, func() { namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	restricted := b.CreateShadowPod("restricted", corev1.RestartPolicyAlways, nil)
	b.Event(restricted, "FailedCreate", "violates PodSecurity")
	b.Edit(namespace, func() { delete(namespace.Labels, "pod-security.kubernetes.io/enforce") })
	b.Pod(restricted, nil)

	var pods corev1.PodList
	b.Must(b.List(t.Context(), &pods))
	for i := range pods.Items {
		if name := pods.Items[i].Name; strings.Contains("host foreign unowned name", name) {
			t.Errorf("pod %s was created", name)
		}
	}
}

// fakeQuota refuses pods until it is open.
type fakeQuota struct {
	open               atomic.Bool
	reserved, released atomic.Int32
}

func (q *fakeQuota) Reserve(string, *vkv1alpha1.ShadowPod, *corev1.Pod, time.Time) (string, error) {
	if !q.open.Load() {
		return "10 of 10 granted", nil
	}
	q.reserved.Add(1)
	return "", nil
}

func (q *fakeQuota) Release(*vkv1alpha1.ShadowPod) { q.released.Add(1) }

// TestAttackH4: the controller reserves what a pod needs before it creates the pod, so a ShadowPod that passed the webhook does not exceed the grant. It
// waits for its pod until others have ended.
func TestAttackH4(t *testing.T) {
	b := shadowtest.New(t)
	quota := &fakeQuota{}
	b.Quota = quota
	b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	b.Event(s, "Refused", "10 of 10 granted")
	if b.Exists(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}) || quota.reserved.Load() > 0 {
		t.Error("a pod beyond the grant was created")
	}
	quota.open.Store(true)
	b.Pod(s, nil)
	if quota.reserved.Load() == 0 || quota.released.Load() > 0 {
		t.Errorf("reserved %d times, released %d times", quota.reserved.Load(), quota.released.Load())
	}
}
