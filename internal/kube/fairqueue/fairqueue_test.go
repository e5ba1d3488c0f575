// SPDX-License-Identifier: Apache-2.0

package fairqueue_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/liqo/internal/kube/fairqueue"
)

var _ workqueue.Queue[types.NamespacedName] = &fairqueue.RoundRobin[types.NamespacedName]{}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestRoundRobin: namespaces take turns, none gets more than its share, and within a namespace the order stays.
func TestRoundRobin(t *testing.T) {
	r := fairqueue.NewRoundRobin(4, func(key types.NamespacedName) string { return key.Namespace })
	if r.Share() != 3 || !r.Empty() {
		t.Fatalf("share %d of four workers, empty %t", r.Share(), r.Empty())
	}
	next := func(want types.NamespacedName) {
		t.Helper()
		if r.Len() == 0 {
			t.Fatalf("no key may be processed, want %s", want)
		}
		if got := r.Pop(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	for i := range 6 {
		r.Push(key("a", fmt.Sprint(i)))
	}
	r.Push(key("b", "0"))
	r.Push(key("b", "1"))
	next(key("a", "0"))
	next(key("b", "0"))
	next(key("a", "1"))
	next(key("b", "1"))
	next(key("a", "2"))
	if r.Len() != 0 {
		t.Errorf("%d keys may be processed beyond the share", r.Len())
	}
	r.Push(key("c", "0"))
	next(key("c", "0"))
	r.Release(key("a", "1"))
	next(key("a", "3"))
	if r.Len() != 0 {
		t.Errorf("%d keys may be processed beyond the share", r.Len())
	}
	for _, processed := range []types.NamespacedName{key("a", "0"), key("a", "2"), key("a", "3"), key("b", "0"), key("b", "1"), key("c", "0")} {
		r.Release(processed)
	}
	next(key("a", "4"))
	next(key("a", "5"))
	r.Release(key("a", "4"))
	r.Release(key("a", "5"))
	r.Release(key("a", "5")) // once too often
	if !r.Empty() || r.Len() != 0 {
		t.Errorf("left: %+v", r)
	}
	for workers, want := range map[int]int{1: 1, 2: 1, 3: 2, 8: 6, 10: 8} {
		if got := fairqueue.NewRoundRobin(workers, func(string) string { return "" }).Share(); got != want {
			t.Errorf("share %d of %d workers, want %d", got, workers, want)
		}
	}
}
