// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestDeletionPeriod: with whatever period a pod is deleted, the peer gets to know it, and an ordinary deletion costs the peer one request.
func TestDeletionPeriod(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS).holdEnds()
	e.run()
	seconds := func(n int64) client.DeleteOption { return client.GracePeriodSeconds(n) }
	evict := func(pod *corev1.Pod, period *int64) {
		e.must(e.consumer.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: period}}))
	}
	for _, c := range []struct {
		name             string
		first, second    func(*corev1.Pod)
		announced, later string
		writes           int // of the ShadowPod, for the first deletion
	}{
		{"controller", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod)) }, nil, "", "", 1},
		{"same", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod, seconds(100))) }, nil, "", "", 1},
		{"eviction", func(pod *corev1.Pod) { evict(pod, nil) }, nil, "", "", 1},
		{"period", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod, seconds(3))) }, nil, "3", "3", 2},
		{"longer", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod, seconds(600))) }, nil, "600", "600", 2},
		{"drain", func(pod *corev1.Pod) { evict(pod, new(int64(5))) }, nil, "5", "5", 2},
		{"shortened", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod)) }, func(pod *corev1.Pod) {
			e.must(e.consumer.Delete(t.Context(), pod, seconds(90))) // of a period that is over already, the API server makes one second
		}, "", "90", 1},
		{"now", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod, seconds(50))) }, func(pod *corev1.Pod) {
			e.must(e.consumer.Delete(t.Context(), pod, seconds(1)))
		}, "50", "1", 2},
		{"forced", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod, seconds(0))) }, nil, "1", "1", 2},
		{"forced-later", func(pod *corev1.Pod) { e.must(e.consumer.Delete(t.Context(), pod)) }, func(pod *corev1.Pod) {
			e.must(e.consumer.Delete(t.Context(), pod, seconds(0)))
		}, "", "1", 1},
	} {
		pod := e.pod(local, c.name)
		pod.Spec.TerminationGracePeriodSeconds = new(int64(100))
		e.must(e.consumer.Create(t.Context(), pod))
		e.untilPod(local, c.name, "Ready", isReady)
		e.waitIdle()
		e.toProvider.reset()
		c.first(pod)
		shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, c.name)}
		e.until(c.name+": the ShadowPod is being deleted", func() bool { return e.exists(e.provider, shadow) && shadow.DeletionTimestamp != nil })
		e.waitIdle()
		if got := shadow.Annotations[labels.DeletionPeriod]; got != c.announced {
			t.Errorf("%s: period %q, want %q", c.name, got, c.announced)
		}
		if got := e.toProvider.writesTo("shadowpods"); len(got) != c.writes {
			t.Errorf("%s: %d writes, want %d: %v", c.name, len(got), c.writes, got)
		}
		if c.second != nil {
			c.second(pod)
			e.until(c.name+": the shorter period arrives", func() bool {
				return e.exists(e.provider, shadow) && shadow.Annotations[labels.DeletionPeriod] == c.later
			})
		}
	}
}

// TestSuccessorWaits: a pod is removed by force, and another one of its name is created at once. It reports what it waits for, and runs once that has ended.
func TestSuccessorWaits(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	provider.holdEnds()
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web-0")))
	first := e.untilPod(local, "web-0", "Ready", isReady)
	e.must(e.consumer.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	e.until("the first is gone here", func() bool { return !e.exists(e.consumer, first) })
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web-0")))
	condition := func(pod *corev1.Pod) *corev1.PodCondition {
		for i := range pod.Status.Conditions {
			if strings.HasSuffix(string(pod.Status.Conditions[i].Type), "/PredecessorGone") {
				return &pod.Status.Conditions[i]
			}
		}
		return nil
	}
	second := e.untilPod(local, "web-0", "waits", func(pod *corev1.Pod) bool {
		return pod.Status.Reason == "PredecessorEnding" && strings.Contains(pod.Status.Message, "which ends until 2")
	})
	if one := condition(second); one == nil || one.Status != corev1.ConditionFalse || one.Message != second.Status.Message {
		t.Errorf("condition %+v", one)
	}
	e.until("an event", func() bool { return e.event(local, "web-0", "PredecessorEnding", "waits for its predecessor") })
	if n := provider.creations(second); n != 0 {
		t.Errorf("it was created %d times beside its predecessor", n)
	}
	if !e.reflection.Another(local, "web-0") || e.reflection.Another(local, "web-1") {
		t.Error("what is asked of the successor would be asked of its predecessor")
	}
	provider.endAll(remoteNS)
	second = e.untilPod(local, "web-0", "Ready", isReady)
	if e.reflection.Another(local, "web-0") {
		t.Error("the pod of its own is taken for another's")
	}
	if one := condition(second); one != nil || second.Status.Reason != "" || second.Status.Message != "" {
		t.Errorf("it runs, and has condition %+v, reason %q, message %q", one, second.Status.Reason, second.Status.Message)
	}
	if n := provider.creations(second); n != 1 {
		t.Errorf("it was created %d times", n)
	}
}
