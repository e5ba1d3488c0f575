// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	if why := e.reflection.Failing(); why != "" {
		t.Fatalf("too early: %s", why)
	}
	fail("last", corev1.RestartPolicyAlways)
	e.until("the engine reports it", func() bool { return strings.Contains(e.reflection.Failing(), "no pods are scheduled there until") })
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
