// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"errors"
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

// version is how far an API server has come.
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

// TestRestored: an API server whose store is replaced by an older one is listed anew. The older store is that of another API server, which
// has not come as far.
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
	for goal := version(t, older) + 200; version(t, newer) < goal; { // what the test itself writes must not catch up
		must(newer.Patch(t.Context(), object("kept", ""), client.RawPatch(types.MergePatchType, []byte(`{"data":{"count":"`+strconv.Itoa(version(t, newer))+`"}}`))))
	}

	var current atomic.Pointer[client.WithWatch]
	current.Store(&newer)
	var again atomic.Int32
	source := New(Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client:  func(context.Context) (client.WithWatch, error) { return *current.Load(), nil },
		Changed: func(client.Object, client.Object) {}, Resumed: func(string) { again.Add(1) },
	})
	known := func() (all []string) {
		for _, one := range source.All(space.Name) {
			all = append(all, one.GetName()+"="+one.(*corev1.ConfigMap).Data["key"])
		}
		slices.Sort(all)
		return all
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > 40*time.Second {
				t.Fatalf("not in time: %s; known %v", what, known())
			}
		}
	}
	source.Add(t.Context(), space.Name)
	until("all is known", func() bool {
		return source.Current(space.Name) && slices.Equal(known(), []string{"kept=new", "lost=new"})
	})
	if again.Load() != 0 {
		t.Error("watched again, before the first watch had ended")
	}
	dialer.CloseAll()
	until("a watch that was cut goes on", func() bool { return again.Load() == 1 && source.Current(space.Name) })
	if got := known(); len(got) != 2 {
		t.Errorf("known %v", got)
	}
	// A watch that told nothing is not gone on with anyway.
	must(newer.Create(t.Context(), object("news", "new")))
	until("there was news", func() bool { return len(known()) == 3 })
	current.Store(&older)
	dialer.CloseAll()
	until("what is in the older store is known", func() bool { return source.Current(space.Name) && slices.Equal(known(), []string{"kept=old"}) })
	must(older.Create(t.Context(), object("next", "1")))
	until("it is watched", func() bool { return slices.Equal(known(), []string{"kept=old", "next=1"}) })
}

// TestListsWhatIsThere: where an API server cannot begin a watch with all there is, the reflector lists, and asks for whatever the server happens
// to remember. What is not in that would be taken for gone.
func TestListsWhatIsThere(t *testing.T) {
	config, _ := kubetest.SharedPair(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	versions := make(chan string, 10)
	asked := interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			all := (&client.ListOptions{}).ApplyOptions(options)
			versions <- all.AsListOptions().ResourceVersion
			return c.List(ctx, list, options...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if all := (&client.ListOptions{}).ApplyOptions(options).AsListOptions(); all.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", nil) // as older ones say
			}
			return c.Watch(ctx, list, options...)
		},
	})
	source := New(Options{
		Object: &corev1.ConfigMap{}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Client: func(context.Context) (client.WithWatch, error) { return asked, nil }, Changed: func(_, _ client.Object) {},
	})
	source.Add(t.Context(), "default")
	kubetest.Eventually(t, "the namespace is known", func() error {
		if !source.Current("default") {
			return errors.New("not yet")
		}
		return nil
	})
	if version := <-versions; version != "" {
		t.Errorf("listed what the API server had at version %q or later", version)
	}
}
