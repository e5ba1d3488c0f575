// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// TestReferencesAreCounted: the first and the last reference count, whichever object has it, and however often the object is reported.
func TestReferencesAreCounted(t *testing.T) {
	var r references
	pod := func(name string) referrer {
		return referrer{"Pod", types.NamespacedName{Namespace: "shop", Name: name}}
	}
	to := func(secrets ...string) (all []reference) {
		for _, name := range secrets {
			all = append(all, reference{"shop", podspec.Reference{Kind: "Secret", Name: name}})
		}
		return all
	}
	a := to("a")[0]
	if changed := r.replace(pod("web"), to("a", "b")); len(changed) != 2 {
		t.Errorf("two appear: %v", changed)
	}
	if changed := r.replace(pod("api"), to("a")); len(changed) != 0 {
		t.Errorf("the second reference changes nothing: %v", changed)
	}
	if changed := r.replace(pod("web"), to("a")); len(changed) != 1 || changed[0].Name != "b" {
		t.Errorf("b disappears: %v", changed)
	}
	if changed := r.replace(pod("web"), nil); len(changed) != 0 || !r.has(a) {
		t.Errorf("one reference is left: %v", changed)
	}
	if changed := r.replace(pod("api"), to("a")); len(changed) != 0 {
		t.Errorf("reported again, it changes nothing: %v", changed)
	}
	if changed := r.replace(pod("api"), nil); len(changed) != 1 || r.has(a) || len(r.count)+len(r.by) != 0 {
		t.Errorf("none is left: %v, %v, %v", changed, r.count, r.by)
	}
}

// TestReferencesOfANamespaceAreForgotten: those of another namespace and of another kind stay.
func TestReferencesOfANamespaceAreForgotten(t *testing.T) {
	var r references
	to := func(namespace string) []reference {
		return []reference{{namespace, podspec.Reference{Kind: "Secret", Name: "certificate"}}}
	}
	for _, namespace := range []string{"shop", "bank"} {
		r.replace(referrer{"Ingress", types.NamespacedName{Namespace: namespace, Name: "web"}}, to(namespace))
	}
	r.forget("Pod", "shop")
	if !r.has(to("shop")[0]) {
		t.Error("the Ingress still refers to it")
	}
	r.forget("Ingress", "shop")
	if r.has(to("shop")[0]) || !r.has(to("bank")[0]) {
		t.Error("want only the reference of the other namespace")
	}
}
