// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Get reads an object, and remembers what it was for the message of a wait that fails.
func (b Env) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return readsOf(b.T).get(ctx, b.Client, key, object, options)
}

// List is Get for a list.
func (b Env) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return readsOf(b.T).list(ctx, b.Client, list, options)
}

// Remembering returns a client that remembers what the test reads, as [Env] does.
func Remembering(t testing.TB, c client.WithWatch) client.WithWatch {
	all := readsOf(t)
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return all.get(ctx, c, key, object, options)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return all.list(ctx, c, list, options)
		},
	})
}

// reads are what a test has read since its last wait began: of each object the last state.
type reads struct {
	mu    sync.Mutex
	count int
	last  map[string]read
}

type read struct {
	number int
	object runtime.Object
	err    error
}

// allReads are those of each test.
var allReads sync.Map

func readsOf(t testing.TB) *reads {
	all, known := allReads.LoadOrStore(t, &reads{last: map[string]read{}})
	if !known && t != nil {
		t.Cleanup(func() { allReads.Delete(t) })
	}
	return all.(*reads) //nolint:forcetypeassert // nothing else is stored
}

func (r *reads) get(ctx context.Context, c client.Reader, key client.ObjectKey, object client.Object, options []client.GetOption) error {
	err := c.Get(ctx, key, object, options...)
	r.saw(kindName(object)+" "+key.String(), object, err)
	return err
}

func (r *reads) list(ctx context.Context, c client.Reader, list client.ObjectList, options []client.ListOption) error {
	err := c.List(ctx, list, options...)
	r.saw(listed(list, options), list, err)
	return err
}

func (r *reads) saw(what string, object runtime.Object, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.last[what] = read{r.count, object.DeepCopyObject(), err}
}

func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// String writes the last reads, the latest first; empty if there are none.
func (r *reads) String() string {
	const most, length = 6, 3000
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(r.last), func(a, b string) int { return r.last[b].number - r.last[a].number })
	var out strings.Builder
	for i, what := range all {
		if i == 0 {
			out.WriteString("\nwhat the test read last:")
		}
		if i == most {
			fmt.Fprintf(&out, "\n  and %d more", len(all)-most)
			break
		}
		text := r.last[what].text()
		if len(text) > length {
			text = strings.ToValidUTF8(text[:length], "") + " [...]"
		}
		fmt.Fprintf(&out, "\n  %s: %s", what, text)
	}
	return out.String()
}

// text is an object without its managed fields, or why there is none.
func (r read) text() string {
	if r.err != nil {
		return r.err.Error()
	}
	plain := func(object runtime.Object) error {
		if one, err := meta.Accessor(object); err == nil {
			one.SetManagedFields(nil)
		}
		return nil
	}
	object := r.object
	if meta.IsListType(object) {
		if err := meta.EachListItem(object, plain); err != nil {
			return err.Error()
		}
	} else if err := plain(object); err != nil {
		return err.Error()
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func kindName(object runtime.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(object).Elem().Name()
}

func listed(list client.ObjectList, options []client.ListOption) string {
	var all client.ListOptions
	return strings.TrimSpace(kindName(list) + " " + all.ApplyOptions(options).Namespace)
}
