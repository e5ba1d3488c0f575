// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// stale is how long after its node became NotReady a pod of a silent provider may be Ready: the documented half a minute, and half of it for a busy machine.
const stale = 45 * time.Second

// podReady returns the condition Ready of a pod.
func podReady(pod *corev1.Pod) corev1.PodCondition {
	for _, one := range pod.Status.Conditions {
		if one.Type == corev1.PodReady {
			return one
		}
	}
	return corev1.PodCondition{}
}

// endpointReady reports whether the slice of the Service has one endpoint, and that one is ready, or not.
func endpointReady(want bool) func(client.Object) bool {
	return func(object client.Object) bool {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		return ok && slice.Labels[discoveryv1.LabelServiceName] == "web" && len(slice.Endpoints) == 1 && *slice.Endpoints[0].Conditions.Ready == want
	}
}

// TestClusterUnreachable: while the provider does not answer, Services send no requests to its pods, and everybody can see why. When it is back, they do.
func TestClusterUnreachable(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it takes a minute and cuts the clusters off from each other; use -long")
	}
	installedAndPeered(t)
	clusters.NeedsPlayground(t, "it cuts the clusters off from each other")
	s := offload(t)
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "web"))
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: x}, ports: [{port: 80}]}}")
	s.running(t, "web")
	serves := rome.Watch(t, &discoveryv1.EndpointSliceList{}, s.name, endpointReady(true))
	serves.Wait(t, env.Hang, "the Service has the pod")
	uid := s.local(t, podKind, "web").GetUID()

	unreachable := rome.Watch(t, &corev1.PodList{}, s.name, func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && podReady(pod).Status == corev1.ConditionFalse && podReady(pod).Reason == "ClusterUnreachable" && pod.Status.Phase == corev1.PodRunning
	})
	unserved := rome.Watch(t, &discoveryv1.EndpointSliceList{}, s.name, endpointReady(false))
	notReady := rome.Watch(t, &corev1.NodeList{}, "", func(object client.Object) bool {
		node, ok := object.(*corev1.Node)
		if !ok || node.Name != virtualNode {
			return false
		}
		status, _ := env.Readiness(node)
		return status != corev1.ConditionTrue
	})
	cut := time.Now()
	clusters.Do(t, "fault", "partition", rome.Name, milan.Name)
	heal := func() { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) }
	t.Cleanup(heal)
	lost := notReady.Wait(t, 2*env.Hang, "the virtual node is NotReady")
	seen := unreachable.Wait(t, 2*env.Hang, "the pod is not Ready because its cluster is unreachable")
	ended := unserved.Wait(t, env.Hang, "the Service has no ready endpoint")
	clusters.Measure("provider cut off to virtual node NotReady", "%.1f s", lost.Sub(cut).Seconds())
	clusters.Measure("virtual node NotReady to ClusterUnreachable", "%.1f s", seen.Sub(lost).Seconds())
	clusters.Measure("provider cut off to endpoint not ready", "%.1f s", ended.Sub(cut).Seconds())
	if took := seen.Sub(lost); took > stale {
		t.Errorf("the pod got the reason ClusterUnreachable %v after its node was NotReady, want at most %v", took, stale)
	}

	again := rome.Watch(t, &discoveryv1.EndpointSliceList{}, s.name, endpointReady(true))
	healed := time.Now()
	heal()
	rome.NodeReady(t, milan)
	back := again.Wait(t, env.Hang, "the Service has the pod again")
	clusters.Measure("provider back to endpoint ready", "%.1f s", back.Sub(healed).Seconds())
	s.wantLocal(t, podKind, "web", "{status: {phase: Running, containerStatuses: [{ready: true, restartCount: 0}]}}")
	if now := s.local(t, podKind, "web").GetUID(); now != uid {
		t.Error("the pod has been replaced")
	}
}
