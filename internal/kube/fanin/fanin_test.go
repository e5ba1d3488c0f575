// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// env holds a source and the changes that it reported.
type env struct {
	*testing.T
	client.WithWatch
	source *Source

	gate     atomic.Pointer[chan struct{}]
	mu       sync.Mutex
	reported []string
}

func newEnv(t *testing.T, change func(*Options)) *env {
	t.Helper()
	config, _ := kubetest.SharedPair(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &env{T: t, WithWatch: c}
	open := make(chan struct{})
	close(open)
	b.gate.Store(&open)
	options := Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client: func(ctx context.Context) (client.WithWatch, error) {
			select {
			case <-*b.gate.Load():
				return c, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Trim: func(object client.Object) { object.SetManagedFields(nil) },
		Changed: func(before, after client.Object) {
			switch {
			case before == nil:
				b.report("+" + after.GetName())
			case after == nil:
				b.report("-" + before.GetName())
			default:
				b.report("~" + after.GetName())
			}
		},
		Synced: func(namespace string) { b.report("synced") },
	}
	if change != nil {
		change(&options)
	}
	b.source = New(options)
	return b
}

func (b *env) report(change string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = append(b.reported, change)
}

// until waits until the source has reported as many changes as are wanted, and fails unless they are the wanted ones, in any order.
func (b *env) until(want ...string) {
	b.Helper()
	slices.Sort(want)
	kubetest.Eventually(b.T, fmt.Sprintf("changes %v", want), func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.reported) < len(want) {
			return fmt.Errorf("only %v reported", b.reported)
		}
		slices.Sort(b.reported)
		if !slices.Equal(b.reported, want) {
			b.Fatalf("reported %v, want %v", b.reported, want)
		}
		b.reported = nil
		return nil
	})
}

// eventually waits until a condition of the source holds.
func (b *env) eventually(what string, holds func() bool) {
	b.Helper()
	kubetest.Eventually(b.T, what, func() error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

func (b *env) namespace() string {
	b.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fanin-"}}
	b.must(b.Create(b.Context(), namespace))
	return namespace.Name
}

func (b *env) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *env) make(namespace, name string) *corev1.ConfigMap {
	b.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.must(b.Create(b.Context(), object))
	return object
}

func TestNamespacesComeAndGo(t *testing.T) {
	b := newEnv(t, nil)
	one, two := b.namespace(), b.namespace()
	first := b.make(one, "a")
	b.make(two, "b")
	b.source.Add(t.Context(), one)
	b.until("+a", "synced")
	if !b.source.Current(one) || b.source.Synced(two) || b.source.Get(client.ObjectKey{Namespace: two, Name: "b"}) != nil {
		t.Error("want the first namespace to be known, and the other not")
	}
	b.source.Add(t.Context(), one) // changes nothing
	b.source.Add(t.Context(), two)
	b.until("+b", "synced")
	first.Data = map[string]string{"x": "y"}
	b.must(b.Update(t.Context(), first))
	b.until("~a")
	if got := b.source.Get(client.ObjectKeyFromObject(first)); got.GetResourceVersion() != first.ResourceVersion || got.GetManagedFields() != nil {
		t.Errorf("object: %+v", got)
	}
	b.source.Remove(one)
	if b.source.Synced(one) || b.source.Current(one) || b.source.Get(client.ObjectKeyFromObject(first)) != nil || len(b.source.All(one)) != 0 {
		t.Error("the source still knows objects of a removed namespace")
	}
	b.must(b.Delete(t.Context(), first)) // not watched
	last := b.make(two, "c")
	b.until("+c")
	b.must(b.Delete(t.Context(), last))
	b.until("-c")
	b.make(one, "d")
	b.source.Add(t.Context(), one)
	b.until("+d", "synced")
	if got := b.source.All(two); len(got) != 1 || got[0].GetName() != "b" {
		t.Errorf("all: %v", got)
	}
}

// TestLook: while a namespace comes and goes, an object that exists is never missing and its namespace current.
func TestLook(t *testing.T) {
	b := newEnv(t, func(o *Options) { o.Changed, o.Synced = func(_, _ client.Object) {}, nil })
	namespace := b.namespace()
	key := client.ObjectKeyFromObject(b.make(namespace, "a"))
	ended, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for {
			if object, current := b.source.Look(key); current && object == nil {
				t.Error("the object does not exist, it seems")
				return
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	for range 20 {
		b.source.Add(t.Context(), namespace)
		b.eventually("the namespace is current", func() bool { _, current := b.source.Look(key); return current })
		b.source.Remove(namespace)
	}
	close(ended)
	<-looked
}

// TestOneNamespaceWaits: a namespace that cannot be read delays no other, and is reported as soon as it can be read.
func TestOneNamespaceWaits(t *testing.T) {
	b := newEnv(t, nil)
	one, two := b.namespace(), b.namespace()
	b.make(one, "a")
	b.make(two, "b")
	open := b.gate.Load()
	shut := make(chan struct{})
	b.gate.Store(&shut)
	b.source.Add(t.Context(), one)
	b.source.Add(t.Context(), b.namespace())
	b.gate.Store(open)
	b.source.Add(t.Context(), two)
	b.eventually("the second namespace is synced", func() bool { return b.source.Synced(two) })
	close(shut)
	b.eventually("the first namespace is current", func() bool { return b.source.Current(one) })
	if b.source.Get(client.ObjectKey{Namespace: one, Name: "a"}) == nil {
		t.Error("the namespace is current without its object")
	}
}

func TestMetadataOfEveryNamespace(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMapList")
	selected := "only-" + strings.ToLower(rand.Text())
	b := newEnv(t, func(o *Options) {
		o.Object = &metav1.PartialObjectMetadata{}
		o.List = func() client.ObjectList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			return list
		}
		o.Select = []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", selected)}}
	})
	one, two := b.namespace(), b.namespace()
	b.source.Add(t.Context(), Every)
	b.until("synced")
	b.make(one, "other")
	first := b.make(one, selected)
	b.make(two, selected)
	b.until("+"+selected, "+"+selected)
	if !b.source.Current(one) || len(b.source.All(one)) != 1 || len(b.source.All(Every)) != 2 {
		t.Errorf("all: %v", b.source.All(Every))
	}
	got := b.source.Get(client.ObjectKeyFromObject(first))
	if _, metadata := got.(*metav1.PartialObjectMetadata); !metadata || got.GetUID() != first.UID {
		t.Errorf("object: %+v", got)
	}
}
