// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// bench holds a source and what it told.
type bench struct {
	*testing.T
	client.WithWatch
	source *Source

	gate atomic.Pointer[chan struct{}]
	mu   sync.Mutex
	told []string
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	config, _ := kubetest.SharedPair(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, WithWatch: c}
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
				b.tell("+" + after.GetName())
			case after == nil:
				b.tell("-" + before.GetName())
			default:
				b.tell("~" + after.GetName())
			}
		},
		Synced: func(namespace string) { b.tell("synced") },
	}
	if change != nil {
		change(&options)
	}
	b.source = New(options)
	return b
}

func (b *bench) tell(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, what)
}

// until waits until all of this, and nothing else, was told since the last time.
func (b *bench) until(want ...string) {
	b.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		b.mu.Lock()
		told := slices.Clone(b.told)
		if len(told) >= len(want) {
			b.told = nil
		}
		b.mu.Unlock()
		if len(told) >= len(want) {
			slices.Sort(told)
			slices.Sort(want)
			if !slices.Equal(told, want) {
				b.Fatalf("told %v, want %v", told, want)
			}
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("told only %v, want %v", told, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bench) namespace() string {
	b.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fanin-"}}
	b.must(b.Create(b.Context(), made))
	return made.Name
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) make(namespace, name string) *corev1.ConfigMap {
	b.Helper()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.must(b.Create(b.Context(), made))
	return made
}

func TestNamespacesComeAndGo(t *testing.T) {
	b := newBench(t, nil)
	one, two := b.namespace(), b.namespace()
	first := b.make(one, "a")
	b.make(two, "b")
	b.source.Add(t.Context(), one)
	b.until("+a", "synced")
	if !b.source.Current(one) || b.source.Synced(two) || b.source.Get(client.ObjectKey{Namespace: two, Name: "b"}) != nil {
		t.Error("one namespace is watched, and the other is not")
	}
	b.source.Add(t.Context(), one) // changes nothing
	b.source.Add(t.Context(), two)
	b.until("+b", "synced")
	first.Data = map[string]string{"x": "y"}
	b.must(b.Update(t.Context(), first))
	b.until("~a")
	if got := b.source.Get(client.ObjectKeyFromObject(first)); got.GetResourceVersion() != first.ResourceVersion || got.GetManagedFields() != nil {
		t.Errorf("known: %+v", got)
	}
	b.source.Remove(one)
	if b.source.Synced(one) || b.source.Current(one) || b.source.Get(client.ObjectKeyFromObject(first)) != nil || len(b.source.All(one)) != 0 {
		t.Error("it is known of a namespace that is not watched any more")
	}
	b.must(b.Delete(t.Context(), first)) // not seen
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

// TestOneNamespaceWaits: what cannot be read holds up nothing else, and is told as soon as it can.
func TestOneNamespaceWaits(t *testing.T) {
	b := newBench(t, nil)
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
	for !b.source.Synced(two) {
		time.Sleep(5 * time.Millisecond)
	}
	close(shut)
	for !b.source.Current(one) {
		time.Sleep(5 * time.Millisecond)
	}
	if b.source.Get(client.ObjectKey{Namespace: one, Name: "a"}) == nil {
		t.Error("it synced without its object")
	}
}

func TestMetadataOfEveryNamespace(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMapList")
	mine := fmt.Sprintf("only-%d", time.Now().UnixNano())
	b := newBench(t, func(o *Options) {
		o.Object = &metav1.PartialObjectMetadata{}
		o.List = func() client.ObjectList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			return list
		}
		o.Select = []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", mine)}}
	})
	one, two := b.namespace(), b.namespace()
	b.source.Add(t.Context(), Every)
	b.until("synced")
	b.make(one, "not-mine")
	first := b.make(one, mine)
	b.make(two, mine)
	b.until("+"+mine, "+"+mine)
	if !b.source.Current(one) || len(b.source.All(one)) != 1 || len(b.source.All(Every)) != 2 {
		t.Errorf("all: %v", b.source.All(Every))
	}
	got := b.source.Get(client.ObjectKeyFromObject(first))
	if _, metadata := got.(*metav1.PartialObjectMetadata); !metadata || got.GetUID() != first.UID {
		t.Errorf("known: %+v", got)
	}
}
