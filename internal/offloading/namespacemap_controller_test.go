// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestMapOfStaleCache: a cache that does not know of an offloaded namespace, or knows less of it, takes nothing from the map.
func TestMapOfStaleCache(t *testing.T) {
	b := newBench(t)
	b.Make(space("stale"))
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "stale", Name: offloadingv1alpha1.NamespaceOffloadingName}}
	b.Make(offloading)
	var known []offloadingv1alpha1.NamespaceOffloading
	r := &mapReconciler{live: b.Client}
	p := &provider{namespaces: &vkv1alpha1.NamespaceMap{Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"stale": "stale-milan"}}}}
	confirm := func() error { return r.confirm(t.Context(), p, known, map[string]string{}) }

	if err := confirm(); err == nil || !strings.Contains(err.Error(), "namespace stale") {
		t.Errorf("the cache knows nothing of it: %v", err)
	}
	known = []offloadingv1alpha1.NamespaceOffloading{*offloading}
	if err := confirm(); err != nil {
		t.Errorf("it is known, and maps nothing: %v", err)
	}
	b.Edit(offloading, func() { offloading.Annotations = map[string]string{"news": "yes"} })
	if err := confirm(); err == nil {
		t.Error("the cache knows less of it")
	}
	b.Must(b.Delete(t.Context(), offloading))
	if err := confirm(); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}
