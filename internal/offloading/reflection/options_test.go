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

// TestNoWorkers: a kind with no workers does not cross, and all others do.
func TestNoWorkers(t *testing.T) {
	kinds := map[string]string{ // what is written over there, by the flag
		"service": "services/web", "endpointslice": "shadowendpointslices/web-x", "ingress": "ingresses/web", "configmap": "configmaps/settings",
		"secret": "secrets/credentials", "pod": "shadowpods/web", "service-account": "secrets/web-token",
	}
	if known := DefaultWorkers(); !slices.Equal(slices.Sorted(maps.Keys(kinds)), slices.Sorted(maps.Keys(known))) {
		t.Fatalf("flags %v", known)
	}
	for flag, off := range map[string][]string{
		"service": nil, "endpointslice": nil, "ingress": nil, "configmap": nil, "secret": nil, "service-account": nil,
		"pod": {"service-account"},
	} {
		t.Run(flag, func(t *testing.T) {
			b := newBed(t)
			b.options = func(o *Options) { o.Workers = map[string]int{flag: 0} }
			local, twin := b.offload()
			for _, object := range []client.Object{
				service(local, "web"), configMap(local, "settings", "1"), ingress(local, "web"), slice(local, "web-x", "web"), withToken(b.pod(local, "web")),
				&corev1.Secret{ObjectMeta: named(local, "credentials"), Data: map[string][]byte{"a": {1, 2}}},
			} {
				b.must(b.home.Create(t.Context(), object))
			}
			b.run()
			var want []string
			for kind, path := range kinds {
				if kind != flag && !slices.Contains(off, kind) {
					want = append(want, path)
				}
			}
			slices.Sort(want)
			b.until("the others are there", func() bool {
				return !slices.ContainsFunc(want, func(path string) bool { return len(b.there.taken(path)) == 0 })
			})
			b.quiet()
			var got []string
			for _, one := range b.there.taken(twin) {
				_, path, _ := strings.Cut(one, twin+"/")
				got = append(got, path)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("written %v, want %v", got, want)
			}
			if asked := b.here.taken("token"); (len(asked) > 0) != slices.Contains(want, kinds["service-account"]) {
				t.Errorf("asked for %v", asked)
			}
			if flag == "pod" && len(b.here.taken()) > 0 {
				t.Errorf("written here: %v", b.here.taken())
			}
		})
	}
}

// TestDenied: keys of labels and annotations that are denied do not cross, of whatever kind, nor come when they are set later.
func TestDenied(t *testing.T) {
	b := newBed(t)
	b.options = func(o *Options) {
		o.Mapping.Skip = project.Denied{Labels: project.Keys{"internal", "secret.example.com/*"}, Annotations: project.Keys{"build.example.com/*"}}
	}
	local, twin := b.offload()
	b.run()
	marked := func(object client.Object) client.Object {
		object.SetLabels(map[string]string{"internal": "x", "internals": "x", "secret.example.com/a": "x"})
		object.SetAnnotations(map[string]string{"build.example.com/id": "x", "build.example.org/id": "x", "internal": "x"})
		return object
	}
	settings := configMap(local, "settings", "1")
	b.must(b.home.Create(t.Context(), marked(settings)))
	b.must(b.home.Create(t.Context(), marked(b.pod(local, "web"))))
	check := func(object client.Object) {
		t.Helper()
		b.until(object.GetName()+" is there", func() bool { return b.exists(b.away, object) })
		marks, notes := object.GetLabels(), object.GetAnnotations()
		if marks["internal"] != "" || marks["secret.example.com/a"] != "" || marks["internals"] != "x" {
			t.Errorf("%s: labels %v", object.GetName(), marks)
		}
		if notes["build.example.com/id"] != "" || notes["build.example.org/id"] != "x" || notes["internal"] != "x" {
			t.Errorf("%s: annotations %v", object.GetName(), notes)
		}
	}
	check(configMap(twin, "settings", ""))
	check(&vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")})
	b.quiet()
	b.there.reset()
	b.edit(b.home, settings, func() { settings.Labels["secret.example.com/b"] = "x" })
	b.quiet()
	if got := b.there.taken(); len(got) > 0 {
		t.Errorf("written %v", got)
	}
}
