// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/provider"
)

// TestMapOfStaleCache: no entry is removed from the map if the cache lacks the NamespaceOffloading, or has an old version.
func TestMapOfStaleCache(t *testing.T) {
	b := controllertest.New(t)
	b.Make(controllertest.Space("stale"))
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "stale", Name: offloadingv1alpha1.NamespaceOffloadingName}}
	b.Make(offloading)
	var known []offloadingv1alpha1.NamespaceOffloading
	r := &reconciler{live: b.Client}
	p := &provider.Provider{Namespaces: &vkv1alpha1.NamespaceMap{Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"stale": "stale-milan"}}}}
	var wanted vkv1alpha1.NamespaceMapSpec
	confirm := func() error { return r.confirm(t.Context(), p, known, wanted) }

	if err := confirm(); err == nil || !strings.Contains(err.Error(), "namespace stale") {
		t.Errorf("not in the cache: %v", err)
	}
	known = []offloadingv1alpha1.NamespaceOffloading{*offloading}
	if err := confirm(); err != nil {
		t.Errorf("in the cache, and not mapped: %v", err)
	}
	b.Edit(offloading, func() { offloading.Annotations = map[string]string{"changed": "yes"} })
	if err := confirm(); err == nil {
		t.Error("the cache is behind")
	}
	// The namespace stays, and a kind of its custom resources would go, with their copies.
	wanted.DesiredMapping = p.Namespaces.Spec.DesiredMapping
	if err := confirm(); err != nil {
		t.Errorf("nothing is removed: %v", err)
	}
	p.Namespaces.Spec.CustomResources = map[string][]vkv1alpha1.ReflectedKind{"stale": {{APIVersion: "example.com/v1", Kind: "Widget", Status: true}}}
	if err := confirm(); err == nil || !strings.Contains(err.Error(), "namespace stale") {
		t.Errorf("the cache is behind, and a kind would go: %v", err)
	}
	wanted.CustomResources = map[string][]vkv1alpha1.ReflectedKind{"stale": {{APIVersion: "example.com/v1", Kind: "Widget"}}}
	if err := confirm(); err != nil {
		t.Errorf("only where the status comes from changes: %v", err)
	}
	wanted = vkv1alpha1.NamespaceMapSpec{}
	b.Must(b.Delete(t.Context(), offloading))
	if err := confirm(); err != nil {
		t.Errorf("deleted: %v", err)
	}
}
