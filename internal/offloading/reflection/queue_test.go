// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func next(t *testing.T, q *queue) types.NamespacedName {
	t.Helper()
	got, more := q.get()
	if !more {
		t.Fatal("closed")
	}
	return got
}

func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		defer q.close()
		for i := range 100 {
			q.add(key("a", fmt.Sprint(i)))
		}
		q.add(key("b", "0"))
		q.add(key("b", "0")) // the same key counts once
		seen := map[string]int{}
		for range 4 { // three of a, which is its share, and the one of b
			seen[next(t, q).Namespace]++
		}
		if ready, working := q.counts(); seen["a"] != 3 || seen["b"] != 1 || ready != 97 || working != 4 {
			t.Errorf("seen %v, %d ready, %d in work", seen, ready, working)
		}
		q.add(key("c", "0"))
		if got := next(t, q); got != key("c", "0") {
			t.Errorf("%v before the key of a namespace without workers", got)
		}
		q.done(key("a", "0"), false, 0)
		if got := next(t, q); got != key("a", "3") {
			t.Errorf("%v", got)
		}
	})
}

func TestQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		defer q.close()
		q.add(key("a", "bad"))
		var last time.Duration
		for i := range 15 {
			start := time.Now()
			next(t, q)
			if took := time.Since(start); i > 0 && (took < last || took > lastBackoff+lastBackoff/4) && last < lastBackoff {
				t.Errorf("attempt %d after %v", i, took)
			} else {
				last = took
			}
			q.add(key("a", "good"))
			if got := next(t, q); got != key("a", "good") {
				t.Errorf("%v", got)
			}
			q.done(key("a", "good"), false, 0)
			q.done(key("a", "bad"), true, 0)
		}
		q.pause()
		q.resume()
		start := time.Now()
		next(t, q)
		if time.Since(start) > 0 {
			t.Error("a failed key is not ready at once after resume")
		}
		q.add(key("a", "bad")) // while a worker has it
		q.done(key("a", "bad"), false, time.Hour)
		start = time.Now()
		next(t, q)
		if time.Since(start) > 0 {
			t.Error("a key that was added during the work is not ready at once")
		}
		q.done(key("a", "bad"), false, 0)

		q.addAfter(key("a", "later"), time.Hour)
		q.addAfter(key("a", "later"), time.Minute)
		q.addAfter(key("a", "later"), 2*time.Hour)
		start = time.Now()
		next(t, q)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("after %v", took)
		}
		q.done(key("a", "later"), false, 0)
		time.Sleep(3 * time.Hour)
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.states) != 0 || !q.ready.Empty() || len(q.later) != 0 {
			t.Errorf("left: %v %v %v", q.states, q.ready, q.later)
		}
	})
}

// TestQueueYields: while keys of the inbound queue wait too long for a worker, the outbound queue starts two keys at a time, and never none. Keys of either
// queue that hang do not count.
func TestQueueYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbound, inbound := newQueue(8), newQueue(8)
		defer outbound.close()
		defer inbound.close()
		inbound.observed = &lateness{onTime: outbound.recheck}
		outbound.yieldsTo = inbound.observed
		started := make(chan types.NamespacedName, 100)
		for range 8 {
			go func() {
				for {
					key, more := outbound.get()
					if !more {
						return
					}
					started <- key
				}
			}()
		}
		starts := func(want int, when string) {
			t.Helper()
			if synctest.Wait(); len(started) != want {
				t.Fatalf("%s: %d keys of the outbound queue started, want %d", when, len(started), want)
			}
		}
		finish := func(n int) {
			for range n {
				outbound.done(<-started, false, 0)
			}
		}
		add := func(n int) {
			for i := range n {
				outbound.add(key(fmt.Sprint(i%4), fmt.Sprint(time.Now().UnixNano(), i)))
			}
		}
		inbound.add(key("a", "hangs")) // its worker takes it at once and never returns
		next(t, inbound)
		time.Sleep(time.Hour)
		add(4)
		starts(4, "nothing waits")
		finish(4)

		for i := range 3 {
			inbound.add(key("b", fmt.Sprint(i)))
		}
		time.Sleep(lateAfter)
		next(t, inbound)
		add(6)
		starts(2, "the inbound queue is late")
		finish(1)
		starts(2, "one has ended")
		time.Sleep(lateFor / 2)
		next(t, inbound)
		starts(2, "another one was late")
		time.Sleep(lateFor / 2)
		starts(4, "the first two hang")
		finish(4)
		starts(1, "the last one")
		finish(1)

		time.Sleep(lateFor)
		add(5)
		starts(5, "no key was late for a second")
		finish(5)
		next(t, inbound)
		add(5)
		starts(2, "late again")
		inbound.add(key("c", "0"))
		next(t, inbound) // at once
		starts(5, "on time again")
		finish(5)
	})
}

// BenchmarkQueue hands out 1,000 keys of ten namespaces.
func BenchmarkQueue(b *testing.B) {
	q := newQueue(10)
	defer q.close()
	keys := make([]types.NamespacedName, 1000)
	for i := range keys {
		keys[i] = key(fmt.Sprint(i%10), fmt.Sprint(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, one := range keys {
			q.add(one)
		}
		for range keys {
			one, _ := q.get()
			q.done(one, false, 0)
		}
	}
}
