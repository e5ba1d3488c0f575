// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestObservedGeneration: a client that waits until a change of a pod is observed waits for the kubelet of the provider.
func TestObservedGeneration(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	created := e.pod(local, "web")
	created.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
	e.must(e.consumer.Create(t.Context(), created))
	pod := e.untilPod(local, "web", "Ready", isReady)
	if pod.Generation != 1 || pod.Status.ObservedGeneration != 0 {
		t.Errorf("at first: generation %d, observed %d", pod.Generation, pod.Status.ObservedGeneration)
	}
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	observe := func() {
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
		text := []byte(`{"status":{"observedGeneration":` + strconv.FormatInt(remote.Generation, 10) + `}}`)
		e.must(e.provider.Status().Patch(t.Context(), remote, client.RawPatch(types.MergePatchType, text)))
	}
	observed := func(generation int64) {
		t.Helper()
		e.untilPod(local, "web", "is observed", func(pod *corev1.Pod) bool {
			return pod.Status.ObservedGeneration == generation && pod.Generation == generation
		})
	}
	observe()
	observed(1)

	pod.Spec.Containers[0].Image = "app:2"
	e.edit(e.consumer, pod, func() { pod.Spec.Containers[0].Image = "app:2" })
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	e.until("the ShadowPod has the generation", func() bool {
		return e.exists(e.provider, shadow) && shadow.Annotations[labels.LocalGeneration] == "2" && shadow.Spec.Pod.Containers[0].Image == "app:2"
	})
	e.edit(e.provider, remote, func() {
		remote.Spec.Containers[0].Image = "app:2"
		remote.Annotations[labels.LocalGeneration] = "2"
	})
	e.waitIdle()
	if e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)); pod.Status.ObservedGeneration != 1 {
		t.Errorf("before the kubelet has seen it: observed %d", pod.Status.ObservedGeneration)
	}
	observe()
	observed(2)
	// A change that is not sent, as that of our own tolerations, costs no write there, and is observed.
	e.toProvider.reset()
	e.edit(e.consumer, pod, func() {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	})
	observed(3)
	e.waitIdle()
	if got := e.toProvider.writesTo("shadowpods"); len(got) != 0 {
		t.Errorf("a change that is not sent costs %v", got)
	}
	e.toConsumer.reset()
	e.reflection.pods.Inbound.Add(key(local, "web"))
	e.waitIdle()
	if got := e.toConsumer.writesTo("pods"); len(got) != 0 {
		t.Errorf("written again: %v", got)
	}
}
