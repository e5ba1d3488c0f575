// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestNoWorkers: a kind without workers is not reflected, and all others are.
func TestNoWorkers(t *testing.T) {
	kinds := map[string]string{ // what is written in the provider, by the flag
		"service": "services/web", "endpointslice": "shadowendpointslices/web-x", "ingress": "ingresses/web", "configmap": "configmaps/settings",
		"secret": "secrets/credentials", "pod": "shadowpods/web", "service-account": "secrets/web-token", "poddisruptionbudget": "poddisruptionbudgets/web",
	}
	if known := DefaultWorkers(); !slices.Equal(slices.Sorted(maps.Keys(kinds)), slices.Sorted(maps.Keys(known))) {
		t.Fatalf("flags %v", known)
	}
	for flag, off := range map[string][]string{
		"service": nil, "endpointslice": nil, "ingress": nil, "configmap": nil, "secret": nil, "service-account": nil, "poddisruptionbudget": nil,
		"pod": {"service-account", "poddisruptionbudget"},
	} {
		t.Run(flag, func(t *testing.T) {
			e := newEnv(t)
			e.options = func(o *Options) { o.Workers = map[string]int{flag: 0} }
			local, remoteNS := e.offload()
			for _, object := range []client.Object{
				service(local, "web"), configMap(local, "settings", "1"), ingress(local, "web"), slice(local, "web-x", "web"), withToken(e.pod(local, "web")),
				&corev1.Secret{ObjectMeta: named(local, "credentials"), Data: map[string][]byte{"a": {1, 2}}},
			} {
				e.must(e.consumer.Create(t.Context(), object))
			}
			e.budget(local, "web", "app", "x")
			e.counts(local, "web", 1, 0)
			e.run()
			var want []string
			for kind, path := range kinds {
				if kind != flag && !slices.Contains(off, kind) {
					want = append(want, path)
				}
			}
			slices.Sort(want)
			e.until("the others are reflected", func() bool {
				return !slices.ContainsFunc(want, func(path string) bool { return len(e.toProvider.writesTo(path)) == 0 })
			})
			e.waitIdle()
			var got []string
			for _, one := range e.toProvider.writesTo(remoteNS) {
				_, path, _ := strings.Cut(one, remoteNS+"/")
				got = append(got, path)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("written %v, want %v", got, want)
			}
			if requested := e.toConsumer.writesTo("token"); (len(requested) > 0) != slices.Contains(want, kinds["service-account"]) {
				t.Errorf("requested tokens: %v", requested)
			}
			// The Service and the Ingress have an event each.
			if events := e.toConsumer.writesTo("POST", "/events"); flag == "pod" && (len(e.toConsumer.writesTo()) != len(events) || len(events) != 2) {
				t.Errorf("written in the consumer: %v", e.toConsumer.writesTo())
			}
		})
	}
}

// TestDenied: denied labels and annotations are not reflected, for any kind, neither at first nor when they are set later.
func TestDenied(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) {
		o.Mapping.Skip = project.Denied{Labels: project.Keys{"internal", "secret.example.com/*"}, Annotations: project.Keys{"build.example.com/*"}}
	}
	local, remoteNS := e.offload()
	e.run()
	withKeys := func(object client.Object) client.Object {
		object.SetLabels(map[string]string{"internal": "x", "internals": "x", "secret.example.com/a": "x"})
		object.SetAnnotations(map[string]string{"build.example.com/id": "x", "build.example.org/id": "x", "internal": "x"})
		return object
	}
	settings := configMap(local, "settings", "1")
	e.must(e.consumer.Create(t.Context(), withKeys(settings)))
	e.must(e.consumer.Create(t.Context(), withKeys(e.pod(local, "web"))))
	check := func(object client.Object) {
		t.Helper()
		e.until(object.GetName()+" exists", func() bool { return e.exists(e.provider, object) })
		keys, notes := object.GetLabels(), object.GetAnnotations()
		if keys["internal"] != "" || keys["secret.example.com/a"] != "" || keys["internals"] != "x" {
			t.Errorf("%s: labels %v", object.GetName(), keys)
		}
		if notes["build.example.com/id"] != "" || notes["build.example.org/id"] != "x" || notes["internal"] != "x" {
			t.Errorf("%s: annotations %v", object.GetName(), notes)
		}
	}
	check(configMap(remoteNS, "settings", ""))
	check(&vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")})
	e.waitIdle()
	e.toProvider.reset()
	e.edit(e.consumer, settings, func() { settings.Labels["secret.example.com/b"] = "x" })
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) > 0 {
		t.Errorf("written %v", got)
	}
}

// TestNoAddresses: without reflection of addresses, a pod that runs in the provider has no address here, and no EndpointSlice is sent; its Service is.
func TestNoAddresses(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) { o.ReflectIPs = false }
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	for _, object := range []client.Object{slice(local, "web-x", "web"), service(local, "web"), e.pod(local, "web")} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	pod := e.untilPod(local, "web", "Ready", isReady)
	if pod.Status.PodIP != "" || len(pod.Status.PodIPs) > 0 || pod.Status.HostIP != hostIP {
		t.Errorf("addresses %q, %v, host %q", pod.Status.PodIP, pod.Status.PodIPs, pod.Status.HostIP)
	}
	e.until("the Service is sent", func() bool { return e.exists(e.provider, &corev1.Service{ObjectMeta: named(remoteNS, "web")}) })
	e.waitIdle()
	if e.exists(e.provider, &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "web-x")}) {
		t.Error("an EndpointSlice was sent")
	}
}
