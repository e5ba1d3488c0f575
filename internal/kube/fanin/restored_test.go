// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"liqo.io/liqo/internal/kube/kubetest"
)

// version returns the current resource version of an API server.
func version(t *testing.T, c client.Client) int {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// TestRestored: the source lists again if the API server is restored from a backup. The test uses a second API server, whose resource version
// is lower, as the restored one.
func TestRestored(t *testing.T) {
	one, two := kubetest.SharedPair(t)
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 5 * time.Second}).DialContext)
	connect := func(config *rest.Config) client.WithWatch {
		config.Dial = dialer.DialContext
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	newer, older := connect(one), connect(two)
	if version(t, newer) < version(t, older) {
		newer, older = older, newer
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restored-"}}
	must(newer.Create(t.Context(), space))
	must(older.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.Name}}))
	object := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: name}, Data: map[string]string{"key": value}}
	}
	must(older.Create(t.Context(), object("kept", "old")))
	must(newer.Create(t.Context(), object("kept", "new")))
	must(newer.Create(t.Context(), object("lost", "new")))
	for goal := version(t, older) + 200; version(t, newer) < goal; { // the writes of the test must not let the older server catch up
		must(newer.Patch(t.Context(), object("kept", ""), client.RawPatch(types.MergePatchType, []byte(`{"data":{"count":"`+strconv.Itoa(version(t, newer))+`"}}`))))
	}

	var current atomic.Pointer[client.WithWatch]
	current.Store(&newer)
	var resumed atomic.Int32
	source := New(Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client:  func(context.Context) (client.WithWatch, error) { return *current.Load(), nil },
		Changed: func(client.Object, client.Object) {}, Resumed: func(string) { resumed.Add(1) },
	})
	known := func() (all []string) {
		for _, one := range source.All(space.Name) {
			all = append(all, one.GetName()+"="+one.(*corev1.ConfigMap).Data["key"])
		}
		slices.Sort(all)
		return all
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		kubetest.Eventually(t, what, func() error {
			if !holds() {
				return fmt.Errorf("known %v", known())
			}
			return nil
		})
	}
	source.Add(t.Context(), space.Name)
	until("all objects are known", func() bool {
		return source.Current(space.Name) && slices.Equal(known(), []string{"kept=new", "lost=new"})
	})
	if resumed.Load() != 0 {
		t.Error("Resumed was called before the first watch ended")
	}
	dialer.CloseAll()
	until("a watch that was cut resumes", func() bool { return resumed.Load() == 1 && source.Current(space.Name) })
	if got := known(); len(got) != 2 {
		t.Errorf("known %v", got)
	}
	// The reflector resumes only a watch that has delivered an event.
	must(newer.Create(t.Context(), object("event", "new")))
	until("the watch delivers an event", func() bool { return len(known()) == 3 })
	current.Store(&older)
	dialer.CloseAll()
	until("only the objects of the older store are known", func() bool { return source.Current(space.Name) && slices.Equal(known(), []string{"kept=old"}) })
	must(older.Create(t.Context(), object("next", "1")))
	until("the older store is watched", func() bool { return slices.Equal(known(), []string{"kept=old", "next=1"}) })
}

// TestListsCurrentObjects: an API server that cannot start a watch with all existing objects is listed at its current version. By default a
// reflector lists from the watch cache, which may be old; the source would take missing objects for deleted.
func TestListsCurrentObjects(t *testing.T) {
	config, _ := kubetest.SharedPair(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	versions := make(chan string, 10)
	intercepted := interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			all := (&client.ListOptions{}).ApplyOptions(options)
			versions <- all.AsListOptions().ResourceVersion
			return c.List(ctx, list, options...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if all := (&client.ListOptions{}).ApplyOptions(options).AsListOptions(); all.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", nil) // as an older API server answers
			}
			return c.Watch(ctx, list, options...)
		},
	})
	source := New(Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client: func(context.Context) (client.WithWatch, error) { return intercepted, nil }, Changed: func(_, _ client.Object) {},
	})
	source.Add(t.Context(), "default")
	kubetest.Eventually(t, "the namespace is current", func() error {
		if !source.Current("default") {
			return errors.New("not yet")
		}
		return nil
	})
	if version := <-versions; version != "" {
		t.Errorf("listed at version %q, which may be old", version)
	}
}
