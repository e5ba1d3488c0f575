// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestAttackDroppedFields: a pod that asks for a sandbox, for devices or for another system is not run by a provider without, unless its namespace allows that.
// One that runs there already goes on.
func TestAttackDroppedFields(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: local}, Handler: "gvisor"}
	e.must(e.consumer.Create(t.Context(), class))
	t.Cleanup(func() { _ = e.consumer.Delete(t.Context(), class) })
	pods := map[string]func(*corev1.PodSpec){
		"runtimeClassName": func(spec *corev1.PodSpec) { spec.RuntimeClassName = &class.Name },
		"resourceClaims": func(spec *corev1.PodSpec) {
			spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		},
		"os": func(spec *corev1.PodSpec) { spec.OS = &corev1.PodOS{Name: corev1.Windows} },
	}
	create := func(prefix string) {
		for field, ask := range pods {
			pod := e.pod(local, prefix+nameOf[field])
			ask(&pod.Spec)
			e.must(e.consumer.Create(t.Context(), pod))
		}
	}
	sent := func(name string) bool {
		return e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, name)})
	}
	allow := func(fields ...string) {
		e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.RunWithout = map[string][]string{local: fields} })
	}

	allow("runtimeClassName", "resourceClaims", "os")
	create("old-")
	for field := range pods {
		e.untilPod(local, "old-"+nameOf[field], "Ready", isReady)
		e.until("an event reports that the pod runs without "+field, func() bool { return e.event(local, "old-"+nameOf[field], "ReflectionIncomplete", field) })
	}
	allow()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "plain")))
	create("new-")
	e.untilPod(local, "plain", "Ready", isReady) // the queue is fair, so the others had their turn
	e.waitIdle()
	for field := range pods {
		name := "new-" + nameOf[field]
		if sent(name) {
			t.Errorf("the pod that asks for %s runs in the provider without", field)
			continue
		}
		pod := e.untilPod(local, name, "refused", func(pod *corev1.Pod) bool { return pod.Status.Reason == "RequestNotMet" })
		if pod.Status.Phase != corev1.PodPending || pod.Labels["liqo.io/shadowPod"] != "" {
			t.Errorf("%s: phase %s, labels %v", name, pod.Status.Phase, pod.Labels)
		}
		e.until("an event names the field", func() bool { return e.event(local, name, "FailedReflection", field) })
	}
	stop()
	e.toProvider.reset()
	e.toConsumer.reset()
	e.run()
	e.waitIdle()
	for field := range pods {
		if old := e.untilPod(local, "old-"+nameOf[field], "runs", isReady); old.DeletionTimestamp != nil {
			t.Errorf("the pod that ran without %s is being deleted", field)
		}
	}
	if got := append(e.toProvider.writesTo("/shadowpods"), e.toConsumer.writesTo("/status")...); len(got) > 0 {
		t.Errorf("written after a restart: %v", got)
	}

	e.must(e.consumer.Delete(t.Context(), e.pod(local, "new-os")))
	e.until("a refused pod can be deleted", func() bool { return !e.exists(e.consumer, e.pod(local, "new-os")) })
	allow("runtimeClassName")
	e.untilPod(local, "new-sandbox", "its namespace lets it run without", func(pod *corev1.Pod) bool { return isReady(pod) && pod.Status.Reason == "" })
	if sent("new-devices") {
		t.Error("the pod that asks for devices runs without as well")
	}
	e.must(e.consumer.Delete(t.Context(), e.pod(local, "old-os"), client.GracePeriodSeconds(0)))
}

// nameOf are parts of names of pods, by the field that they ask for.
var nameOf = map[string]string{"runtimeClassName": "sandbox", "resourceClaims": "devices", "os": "os"}
