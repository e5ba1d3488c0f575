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

// TestRestoredStore: for a while, an object that is older than our write comes from a cache that lags behind. After that, the API server was
// restored from a backup and has lost our write.
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
	cached := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: old.ObjectMeta}
	patches.Store(0)
	must(t, applier.ApplyTo(t.Context(), intent("2"), cached))
	if got := patches.Load(); got != 0 {
		t.Errorf("the cache lags behind: %d writes, want none", got)
	}
	if !applier.JustWritten(intent("2")) || applier.JustWritten(intent("1")) {
		t.Error("JustWritten does not know the last intent")
	}
	aged := time.Now().Add(-2 * lag)
	for target, last := range applier.last {
		last.at = aged
		applier.last[target] = last
	}
	if applier.JustWritten(intent("2")) {
		t.Error("JustWritten is true long after the write")
	}
	must(t, applier.ApplyTo(t.Context(), intent("2"), cached))
	if got := patches.Load(); got != 1 {
		t.Errorf("the API server was restored from a backup: %d writes, want 1", got)
	}
	if !applier.last[target{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), name: key}].at.After(aged) {
		t.Error("the applier did not record the repeated write")
	}
}
