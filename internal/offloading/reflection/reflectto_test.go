// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// TestAttackNM6: a provider of the namespace does not get the keys of a move between two other clusters, nor other objects that are bound to virtual nodes of
// others; from one that had them, they are taken.
func TestAttackNM6(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	meta := func(name string, to ...string) metav1.ObjectMeta {
		m := named(local, name)
		if len(to) > 0 {
			m.Annotations = map[string]string{labels.ReflectTo: to[0], "note": "kept"}
		}
		return m
	}
	ports := []corev1.ServicePort{{Port: 22}}
	key := &corev1.Secret{ObjectMeta: meta("key-of-turin", "liqo-turin"), Data: map[string][]byte{"client": []byte("x")}, Immutable: new(true)}
	ours := &corev1.Secret{ObjectMeta: meta("key-of-milan", e.node), Data: map[string][]byte{"server": []byte("x")}, Immutable: new(true)}
	for _, object := range []client.Object{
		key, ours, &corev1.Secret{ObjectMeta: meta("key-of-both", "liqo-turin, "+e.node)}, &corev1.Secret{ObjectMeta: meta("key-of-none", "")},
		&corev1.Secret{ObjectMeta: meta("other")}, &corev1.ConfigMap{ObjectMeta: meta("key-of-turin", "liqo-turin")},
		&corev1.Service{ObjectMeta: meta("of-turin", "liqo-turin"), Spec: corev1.ServiceSpec{Ports: ports}},
		&corev1.Service{ObjectMeta: meta("of-milan", e.node), Spec: corev1.ServiceSpec{Ports: ports}},
	} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	e.run()
	expect := func(what string, kind string, want ...string) {
		t.Helper()
		there := func() (names []string) {
			for _, object := range e.reflection.objects.Kind(kind).Remote.All(remoteNS) {
				names = append(names, object.GetName())
			}
			slices.Sort(names)
			return names
		}
		e.until(what, func() bool { return len(there()) >= len(want) })
		e.waitIdle()
		if got := there(); !slices.Equal(got, want) {
			t.Errorf("%s: the provider has the %ss %v, want %v", what, kind, got, want)
		}
	}
	expect("what is for it", "Secret", "key-of-both", "key-of-milan", "other")
	expect("what is for it", "ConfigMap")
	expect("what is for it", "Service", "of-milan")
	copied := &corev1.Secret{ObjectMeta: named(remoteNS, "key-of-milan")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))
	if _, ok := copied.Annotations[labels.ReflectTo]; ok || copied.Annotations["note"] != "kept" {
		t.Errorf("annotations of the copy: %v", copied.Annotations)
	}

	e.edit(e.consumer, ours, func() { ours.Annotations[labels.ReflectTo] = "liqo-turin" })
	e.until("the key is taken away", func() bool { return !e.exists(e.provider, copied) })
	e.edit(e.consumer, key, func() { delete(key.Annotations, labels.ReflectTo) })
	e.until("the key is for all again", func() bool { return e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, key.Name)}) })
}
