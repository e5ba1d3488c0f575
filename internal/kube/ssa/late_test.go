// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cut fails to apply, without an answer of the API server.
type cut struct {
	client.Client
	is bool
}

func (c *cut) Apply(ctx context.Context, intent runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if c.is {
		return errors.New("http2: client connection lost")
	}
	return c.Client.Apply(ctx, intent, options...)
}

// TestLateWrite: a write that was given up arrives after a later one, within the same second. The object then has the old intent, and its managed fields show
// nothing of that.
func TestLateWrite(t *testing.T) {
	c, namespace, patches := counted(t)
	network := &cut{Client: c}
	applier := NewApplier(network, owner)
	key := client.ObjectKey{Namespace: namespace, Name: "settings"}
	intent := func(value string) *coreconfig.ConfigMapApplyConfiguration {
		return coreconfig.ConfigMap(key.Name, namespace).WithData(map[string]string{"key": value})
	}
	network.is = true
	if err := applier.ApplyTo(t.Context(), intent("1"), nil); err == nil {
		t.Fatal("the network is cut, and the write succeeds")
	}
	network.is = false
	must(t, applier.ApplyTo(t.Context(), intent("2"), nil))
	must(t, c.Apply(t.Context(), intent("1"), client.FieldOwner(owner), client.ForceOwnership)) // the kernel sends it once more
	var live corev1.ConfigMap
	must(t, c.Get(t.Context(), key, &live))
	Fingerprint(&live, owner)
	cached := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: live.ObjectMeta}
	must(t, applier.ApplyTo(t.Context(), intent("2"), cached))
	must(t, c.Get(t.Context(), key, &live))
	if live.Data["key"] != "2" {
		t.Errorf("the object keeps the intent that arrived late: %v", live.Data)
	}
	Fingerprint(&live, owner)
	cached.ObjectMeta = live.ObjectMeta
	patches.Store(0)
	must(t, applier.ApplyTo(t.Context(), intent("2"), cached))
	if got := patches.Load(); got != 0 {
		t.Errorf("%d writes of what is there already", got)
	}
}

// TestLateWriteAfterDeletion: as TestLateWrite, but the object is deleted and created again before the first write arrives.
func TestLateWriteAfterDeletion(t *testing.T) {
	c, namespace, _ := counted(t)
	network := &cut{Client: c}
	applier := NewApplier(network, owner)
	key := client.ObjectKey{Namespace: namespace, Name: "settings"}
	intent := func(value string) *coreconfig.ConfigMapApplyConfiguration {
		return coreconfig.ConfigMap(key.Name, namespace).WithData(map[string]string{"key": value})
	}
	must(t, applier.ApplyTo(t.Context(), intent("0"), nil))
	network.is = true
	if err := applier.ApplyTo(t.Context(), intent("1"), nil); err == nil {
		t.Fatal("the network is cut, and the write succeeds")
	}
	network.is = false
	must(t, c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}}))
	applier.Forget(key)
	must(t, applier.ApplyTo(t.Context(), intent("2"), nil))
	must(t, c.Apply(t.Context(), intent("1"), client.FieldOwner(owner), client.ForceOwnership)) // the write that was given up
	var live corev1.ConfigMap
	must(t, c.Get(t.Context(), key, &live))
	Fingerprint(&live, owner)
	cached := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: live.ObjectMeta}
	must(t, applier.ApplyTo(t.Context(), intent("2"), cached))
	must(t, c.Get(t.Context(), key, &live))
	if live.Data["key"] != "2" {
		t.Errorf("the object keeps the intent that arrived late: %v", live.Data)
	}
}

// TestDoubtsExpire: writes to objects that are gone soon, whatever their names, get no answer for a day. The applier remembers those that may still arrive.
func TestDoubtsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewApplierOf(nil, owner)
		for i := range 24 * 60 {
			name := client.ObjectKey{Namespace: "a", Name: fmt.Sprint("pod-", i)}
			one := target{kind: schema.GroupVersionKind{Kind: "ShadowPod"}, name: name}
			a.doubt(encoded{target: one}, errors.New("no answer within 10s"))
			a.Forget(name)
			time.Sleep(time.Minute)
			if !a.doubtful(one) {
				t.Fatalf("%s is forgotten while the write may arrive", name)
			}
		}
		if n, most := len(a.doubts), 2*int(doubtFor/time.Minute)+1; n > most {
			t.Errorf("%d writes are remembered, want those of ten minutes, at most %d", n, most)
		}
	})
}
