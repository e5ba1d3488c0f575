// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
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
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule,
		})
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

// TestObservedGenerationAfterAnUpgrade: an API server of this cluster that does not keep observed generations gets no write for them. Once there is one that
// does, they are written with the next change.
func TestObservedGenerationAfterAnUpgrade(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	var older atomic.Bool
	older.Store(true)
	e.kubelet.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPatch || !strings.HasSuffix(request.URL.Path, "/status") || !older.Load() {
				return next.RoundTrip(request)
			}
			text, err := io.ReadAll(request.Body)
			if err != nil {
				return nil, err
			}
			var patch map[string]any
			if err := json.Unmarshal(text, &patch); err != nil {
				return nil, err
			}
			if status, ok := patch["status"].(map[string]any); ok {
				delete(status, "observedGeneration")
			}
			if text, err = json.Marshal(patch); err != nil {
				return nil, err
			}
			request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			return next.RoundTrip(request)
		})
	})
	e.run()
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	e.waitIdle()
	e.toConsumer.reset()
	text := []byte(`{"status":{"observedGeneration":` + strconv.FormatInt(remote.Generation, 10) + `}}`)
	e.must(e.provider.Status().Patch(t.Context(), remote, client.RawPatch(types.MergePatchType, text)))
	e.until("the generation is written", func() bool { return len(e.toConsumer.writesTo("pods")) == 1 })
	e.waitIdle()
	e.toConsumer.reset()
	for range 3 {
		e.reflection.pods.Inbound.Add(key(local, "web"))
		e.waitIdle()
	}
	if got := e.toConsumer.writesTo("pods"); len(got) != 0 {
		t.Errorf("an API server without generations gets %v", got)
	}
	// After the upgrade, something else is to be written.
	older.Store(false)
	provider.holdReady(true)
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	for i := range remote.Status.Conditions {
		if remote.Status.Conditions[i].Type == corev1.PodReady {
			remote.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	e.must(e.provider.Status().Update(t.Context(), remote))
	pod := e.untilPod(local, "web", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	if pod.Status.ObservedGeneration != 1 {
		t.Errorf("after the upgrade: observed %d", pod.Status.ObservedGeneration)
	}
}
