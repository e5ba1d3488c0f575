// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

// items returns the metric of reflected objects by kind, for one namespace.
func items(t *testing.T, namespace string) map[string]float64 {
	t.Helper()
	return byKind(t, "liqo_virtual_kubelet_reflection_item_counter", namespace)
}

// byKind returns a metric with the documented labels by kind, for one namespace.
func byKind(t *testing.T, name, namespace string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, one := range family.GetMetric() {
			all := map[string]string{}
			for _, label := range one.GetLabel() {
				all[label.GetName()] = label.GetValue()
			}
			if all["namespace"] == namespace && all["cluster_id"] == remoteID && all["cluster_name"] == "milan" && all["node_name"] != "" {
				found[all["reflector_resource"]] = one.GetGauge().GetValue() + one.GetCounter().GetValue() // a metric is one of them
			}
		}
	}
	return found
}

// TestErrors: the metric counts failed attempts to reflect an object, and ends with the offloading.
func TestErrors(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.must(e.provider.Create(t.Context(), configMap(remoteNS, "settings", "theirs")))
	e.run()
	e.must(e.consumer.Create(t.Context(), configMap(local, "settings", "ours")))
	failures := func() map[string]float64 { return byKind(t, "liqo_virtual_kubelet_reflection_error_counter", local) }
	e.until("the conflict with an object of others is counted", func() bool { return failures()["ConfigMap"] > 0 })
	if have := failures(); len(have) != 1 {
		t.Errorf("failures %v", have)
	}
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, local) })
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
	e.until("the counter ends", func() bool { return len(failures()) == 0 })
}

// TestItems: the metric is the number of objects that are reflected now: it falls with deletions, survives a restart, and ends with the offloading.
func TestItems(t *testing.T) {
	e := newEnv(t)
	local, _ := e.offload()
	stop := e.run()
	is := func(want map[string]float64) {
		t.Helper()
		kubetest.Eventually(t, "the metric is right", func() error {
			if have := items(t, local); !maps.Equal(have, want) {
				return fmt.Errorf("(-want +got)\n%s", cmp.Diff(want, have))
			}
			return nil
		})
	}
	none := map[string]float64{
		"ConfigMap": 0, "EndpointSlice": 0, "Ingress": 0, "Pod": 0, "PodDisruptionBudget": 0, "Secret": 0, "Service": 0,
		"ServiceAccount": 0,
	}
	with := func(change map[string]float64) map[string]float64 {
		all := maps.Clone(none)
		maps.Copy(all, change)
		return all
	}
	is(none)
	for _, object := range []client.Object{service(local, "web"), slice(local, "web-x", "web"), configMap(local, "one", "1"), configMap(local, "two", "2")} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	is(with(map[string]float64{"ConfigMap": 2, "Service": 1, "EndpointSlice": 1}))
	settings := configMap(local, "one", "")
	e.edit(e.consumer, settings, func() { settings.Data = map[string]string{"other": "2"} })
	e.must(e.consumer.Delete(t.Context(), configMap(local, "two", "")))
	is(with(map[string]float64{"ConfigMap": 1, "Service": 1, "EndpointSlice": 1}))
	stop()
	is(map[string]float64{})
	stop = e.run()
	is(with(map[string]float64{"ConfigMap": 1, "Service": 1, "EndpointSlice": 1}))
	stop()
}

// TestSuccessfulReflection: a Service gets the documented event once, when it is created in the peer: not for a change, and not after a restart.
func TestSuccessfulReflection(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), configMap(local, "settings", "1")))
	e.until("the namespace is compared", func() bool { return items(t, local)["ConfigMap"] == 1 })
	e.waitIdle()
	release := e.toProvider.hold("/services") // the Service changes before its creation in the peer is seen
	e.must(e.consumer.Create(t.Context(), service(local, "web")))
	events := func() (found []corev1.Event) {
		var all corev1.EventList
		e.must(e.consumer.List(t.Context(), &all, client.InNamespace(local)))
		for _, event := range all.Items {
			if event.Reason == "SuccessfulReflection" {
				found = append(found, event)
			}
		}
		return found
	}
	e.until("the event is there", func() bool { return len(events()) > 0 })
	web := service(local, "web")
	e.edit(e.consumer, web, func() { web.Spec.Selector["app"] = "other" })
	e.until("the copy follows", func() bool {
		remote := service(remoteNS, "web")
		return e.exists(e.provider, remote) && remote.Spec.Selector["app"] == "other"
	})
	release()
	e.waitIdle()
	stop()
	stop = e.run()
	e.until("the copies are cached again", func() bool { return items(t, local)["Service"] == 1 && items(t, local)["ConfigMap"] == 1 })
	e.waitIdle()
	stop()
	found := events()
	if len(found) != 1 {
		t.Fatalf("%d events, want 1: %v", len(found), found)
	}
	if event := found[0]; event.Type != corev1.EventTypeNormal || event.InvolvedObject.Kind != "Service" || event.InvolvedObject.Name != "web" ||
		event.Source.Component != "liqo-service-reflection" || event.Message != `the object is reflected to cluster "milan"` {
		t.Errorf("%+v", event)
	}
}
