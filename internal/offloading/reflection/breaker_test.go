// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestBreaker: the limit within the window opens the breaker, and the pause closes it.
func TestBreaker(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	changes := 0
	b := &breaker{limit: 3, changed: func() { changes++ }}
	for i, test := range []struct {
		after  time.Duration
		opened bool
		open   bool
	}{
		{0, false, false},
		{time.Minute, false, false},
		{failureWindow, false, false}, // the first is forgotten, the second just not
		{failureWindow + time.Second, true, true},
		{failureWindow + 2*time.Second, false, true}, // not counted
		{failureWindow + time.Second + failurePause, false, false},
		{failureWindow + time.Minute + failurePause, false, false},
		{failureWindow + 2*time.Minute + failurePause, true, true},
	} {
		at := now.Add(test.after)
		if opened := b.record(at); opened != test.opened || (b.message(at) != "") != test.open {
			t.Errorf("failure %d: opened %v, message %q", i, opened, b.message(at))
		}
	}
	if changes != 2 {
		t.Errorf("%d changes are reported, want 2", changes)
	}
}

// TestAttackM7FailedPods: a provider fails each pod as it comes. The engine reports that the node must get no more pods, and an event on a pod
// names the reason. Pods that a Job runs once may fail as often as they like: their controller replaces them with a backoff.
func TestAttackM7FailedPods(t *testing.T) {
	e := newEnv(t)
	const limit = 5
	e.options = func(o *Options) { o.FailureLimit = limit }
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	fail := func(name string, policy corev1.RestartPolicy) {
		pod := e.pod(local, name)
		pod.Spec.RestartPolicy = policy
		e.must(e.consumer.Create(t.Context(), pod))
		e.untilPod(local, name, "Ready", isReady)
		remote := &corev1.Pod{ObjectMeta: named(remoteNS, name)}
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
		provider.end(remote, corev1.PodFailed, 1)
		e.untilPod(local, name, "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	}
	for i := range limit {
		fail(fmt.Sprintf("once-%d", i), corev1.RestartPolicyNever)
	}
	for i := range limit - 1 {
		fail(fmt.Sprintf("web-%d", i), corev1.RestartPolicyAlways)
	}
	if why := e.engine.Failing(); why != "" {
		t.Fatalf("too early: %s", why)
	}
	fail("last", corev1.RestartPolicyAlways)
	e.until("the engine reports it", func() bool { return strings.Contains(e.engine.Failing(), "no pods are scheduled there until") })
	e.until("an event reports it", func() bool {
		var events corev1.EventList
		e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		for i := range events.Items {
			if events.Items[i].InvolvedObject.Name == "last" && events.Items[i].Reason == "PodsFailInALoop" {
				return true
			}
		}
		return false
	})
}
