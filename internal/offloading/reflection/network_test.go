// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestNetworkDown: while the tunnel is down and the provider's API server answers, pods are not Ready, so that Services send them nothing, and everything else
// about them is reported. A restart meanwhile changes nothing.
func TestNetworkDown(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) { o.CheckNetwork = true }
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	stop := e.run()
	e.reflection.SetNetwork(true)
	pod := func(name string) *corev1.Pod {
		made := e.pod(local, name)
		made.Spec.RestartPolicy = corev1.RestartPolicyNever
		return made
	}
	for _, name := range []string{"web", "api", "job"} {
		e.must(e.consumer.Create(t.Context(), pod(name)))
		e.untilPod(local, name, "Ready", isReady)
	}
	e.waitIdle()
	cutOff := func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionFalse && condition.Reason == podstatus.NetworkUnreachable && pod.Status.Phase == corev1.PodRunning &&
					pod.Status.PodIP != ""
			}
		}
		return false
	}
	// The node lifecycle controller does this once, when the node becomes NotReady.
	markNotReady := func(name string) {
		text := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
		e.must(e.consumer.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, name)}, client.RawPatch(types.StrategicMergePatchType, text)))
	}
	e.toConsumer.reset()
	e.reflection.SetNetwork(false)
	markNotReady("web")
	e.untilPod(local, "web", "not Ready", cutOff)
	e.untilPod(local, "api", "not Ready", cutOff)
	markNotReady("api")
	e.reflection.SetNetwork(false)
	e.waitIdle()
	if got := e.toConsumer.writesTo("PATCH", "/pods/api/status"); len(got) != 1 {
		t.Errorf("written while the network was down: %v", got)
	}
	provider.end(&corev1.Pod{ObjectMeta: named(remoteNS, "job")}, corev1.PodSucceeded, 0)
	e.untilPod(local, "job", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	e.must(e.consumer.Create(t.Context(), pod("late")))
	e.untilPod(local, "late", "runs, and is not Ready", cutOff)
	e.waitIdle()

	stop()
	e.toConsumer.reset()
	e.run()
	e.until("the engine has compared", func() bool {
		mapping, _ := e.reflection.engine.Namespaces.Local(local)
		return mapping != nil && mapping.Compared("Pod")
	})
	e.waitIdle()
	e.reflection.SetNetwork(false)
	e.waitIdle()
	if got := e.toConsumer.writesTo("PATCH"); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}
	e.reflection.SetNetwork(true)
	for _, name := range []string{"web", "api", "late"} {
		e.untilPod(local, name, "Ready again", isReady)
	}
	e.waitIdle()
	if got := e.toConsumer.writesTo("PATCH", "/status"); len(got) != 3 {
		t.Errorf("written when the network was back: %v", got)
	}
}
