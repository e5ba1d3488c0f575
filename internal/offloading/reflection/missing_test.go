// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestRemotePodMissing: a pod that is gone from the provider, which cannot create it again at once, is not Ready, so that Services do not send requests to
// the address of a pod that does not run. It is Ready again with its next pod.
func TestRemotePodMissing(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	provider.gone(e, remoteNS, "web")
	e.untilPod(local, "web", "not Ready, because nothing runs", func(pod *corev1.Pod) bool {
		for _, one := range pod.Status.Conditions {
			if one.Type == corev1.PodReady {
				return one.Status == corev1.ConditionFalse && one.Reason == podstatus.RemotePodMissing && pod.Status.Phase == corev1.PodRunning
			}
		}
		return false
	})
}
