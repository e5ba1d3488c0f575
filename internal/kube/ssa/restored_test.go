// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRestoredStore: what is older than our write is a cache that is behind, for a while. After that it is an API server whose store has
// been replaced by an older one, which lacks what we wrote.
func TestRestoredStore(t *testing.T) {
	c, namespace, patches := counted(t)
	applier := NewApplier(c, owner)
	key := client.ObjectKey{Namespace: namespace, Name: "settings"}
	intent := func(value string) *coreconfig.ConfigMapApplyConfiguration {
		return coreconfig.ConfigMap(key.Name, namespace).WithData(map[string]string{"key": value})
	}
	must(t, applier.ApplyTo(t.Context(), intent("1"), nil))
	var old corev1.ConfigMap
	must(t, c.Get(t.Context(), key, &old))
	must(t, applier.ApplyTo(t.Context(), intent("2"), &old))
	Fingerprint(&old, owner)
	seen := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: old.ObjectMeta}
	patches.Store(0)
	must(t, applier.ApplyTo(t.Context(), intent("2"), seen))
	if got := patches.Load(); got != 0 {
		t.Errorf("a cache is behind: %d writes", got)
	}
	if !applier.JustWritten(intent("2")) || applier.JustWritten(intent("1")) {
		t.Error("it is not known what was just written")
	}
	for target, last := range applier.last {
		last.at = last.at.Add(-2 * lag)
		applier.last[target] = last
	}
	if applier.JustWritten(intent("2")) {
		t.Error("that was long ago")
	}
	must(t, applier.ApplyTo(t.Context(), intent("2"), seen))
	if got := patches.Load(); got != 1 {
		t.Errorf("the store is an older one: %d writes", got)
	}
	if time.Since(applier.last[target{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), name: key}].at) > lag {
		t.Error("the write was not noted")
	}
}
