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

// TestAttackM12: a peer that spreads its objects over many namespaces gets the turns and the workers of one peer.
func TestAttackM12(t *testing.T) {
	peers := map[string]string{"quiet": "milan"} // every other namespace is of one peer
	r := fairqueue.NewByPeer(8, func(key types.NamespacedName) string {
		if peer := peers[key.Namespace]; peer != "" {
			return peer
		}
		return "rome"
	}, func(key types.NamespacedName) string { return key.Namespace })
	for i := range 500 {
		r.Push(key(fmt.Sprint("flood-", i), "first"))
		r.Push(key(fmt.Sprint("flood-", i), "second"))
	}
	for i := range 20 {
		r.Push(key("quiet", fmt.Sprint(i)))
	}
	// Peers take turns, so of the first 40 keys half are those of the other peer.
	quiet := 0
	for range 40 {
		one := r.Pop()
		if one.Namespace == "quiet" {
			quiet++
		}
		r.Release(one)
	}
	if quiet != 20 {
		t.Errorf("the other peer had %d of 40 turns, want 20", quiet)
	}
	// While all workers that a peer may have hang, one is left for the others.
	hanging := []types.NamespacedName{}
	for r.Len() > 0 {
		hanging = append(hanging, r.Pop())
	}
	if len(hanging) != 7 {
		t.Errorf("%d of 8 workers are given to one peer", len(hanging))
	}
	r.Push(key("quiet", "late"))
	if r.Len() == 0 || r.Pop() != key("quiet", "late") {
		t.Error("the other peer waits for one that hangs")
	}
	// The namespaces of a peer take turns as well, and none gets all its workers.
	seen := map[string]int{}
	for _, one := range hanging {
		seen[one.Namespace]++
	}
	if len(seen) != len(hanging) {
		t.Errorf("namespaces of a peer do not take turns: %v", seen)
	}
	for workers, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 6, 10: 8} {
		if got := fairqueue.NewByPeer(workers, func(string) string { return "" }, func(string) string { return "" }).Share(); got != want {
			t.Errorf("share %d of %d workers, want %d", got, workers, want)
		}
	}

	// The peer of a namespace becomes known while one of its keys is processed: no worker is lost.
	peers["quiet"] = "turin"
	r.Push(key("quiet", "later"))
	for _, one := range append(hanging, key("quiet", "late")) {
		r.Release(one)
	}
	for r.Len() > 0 {
		r.Release(r.Pop())
	}
	if !r.Empty() {
		t.Errorf("left: %+v", r)
	}
}
