// SPDX-License-Identifier: Apache-2.0

package fairqueue

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

func next(t *testing.T, q *Queue) types.NamespacedName {
	t.Helper()
	got, more := q.Get()
	if !more {
		t.Fatal("closed")
	}
	return got
}

// counts returns how many keys are ready, and how many workers have.
func counts(q *Queue) (ready, working int) {
	for _, s := range q.States() {
		if s.Ready {
			ready++
		}
		if s.Working {
			working++
		}
	}
	return ready, working
}

func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(4)
		defer q.Close()
		for i := range 100 {
			q.Add(key("a", fmt.Sprint(i)))
		}
		q.Add(key("b", "0"))
		q.Add(key("b", "0")) // the same key counts once
		seen := map[string]int{}
		for range 4 { // three of a, which is its share, and the one of b
			seen[next(t, q).Namespace]++
		}
		if ready, working := counts(q); seen["a"] != 3 || seen["b"] != 1 || ready != 97 || working != 4 {
			t.Errorf("seen %v, %d ready, %d in work", seen, ready, working)
		}
		q.Add(key("c", "0"))
		if got := next(t, q); got != key("c", "0") {
			t.Errorf("%v before the key of a namespace without workers", got)
		}
		q.Done(key("a", "0"), false, 0)
		if got := next(t, q); got != key("a", "3") {
			t.Errorf("%v", got)
		}
	})
}

func TestQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(4)
		defer q.Close()
		q.Add(key("a", "bad"))
		var last time.Duration
		for i := range 15 {
			start := time.Now()
			next(t, q)
			if took := time.Since(start); i > 0 && (took < last || took > lastBackoff+lastBackoff/4) && last < lastBackoff {
				t.Errorf("attempt %d after %v", i, took)
			} else {
				last = took
			}
			q.Add(key("a", "good"))
			if got := next(t, q); got != key("a", "good") {
				t.Errorf("%v", got)
			}
			q.Done(key("a", "good"), false, 0)
			q.Done(key("a", "bad"), true, 0)
		}
		q.Pause()
		q.Resume()
		start := time.Now()
		next(t, q)
		if time.Since(start) > 0 {
			t.Error("a failed key is not ready at once after resume")
		}
		q.Add(key("a", "bad")) // while a worker has it
		q.Done(key("a", "bad"), false, time.Hour)
		start = time.Now()
		next(t, q)
		if time.Since(start) > 0 {
			t.Error("a key that was added during the work is not ready at once")
		}
		q.Done(key("a", "bad"), false, 0)

		q.AddAfter(key("a", "later"), time.Hour)
		q.AddAfter(key("a", "later"), time.Minute)
		q.AddAfter(key("a", "later"), 2*time.Hour)
		start = time.Now()
		next(t, q)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("after %v", took)
		}
		q.Done(key("a", "later"), true, 0)
		if !q.Postpone(key("a", "later"), time.Now().Add(time.Hour)) || q.Postpone(key("a", "other"), time.Now()) {
			t.Error("not only the scheduled key can be postponed")
		}
		start = time.Now()
		next(t, q)
		if took := time.Since(start); took != time.Hour {
			t.Errorf("after %v", took)
		}
		q.Done(key("a", "later"), false, 0)
		time.Sleep(3 * time.Hour)
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.states) != 0 || !q.ready.Empty() || len(q.later) != 0 {
			t.Errorf("left: %v %v %v", q.states, q.ready, q.later)
		}
	})
}

// TestReplacedAppointments: keys that are due in an hour get events without end. The queue keeps little more than one appointment of each, and every key is due
// an hour after its last event.
func TestReplacedAppointments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, rounds = 20, 50
		q := NewQueue(1)
		defer q.Close()
		most, last := 0, map[types.NamespacedName]time.Time{}
		for range rounds {
			time.Sleep(time.Millisecond)
			for i := range keys {
				q.Add(key("a", fmt.Sprint(i)))
				got := next(t, q)
				q.Done(got, false, time.Hour)
				last[got] = time.Now()
				most = max(most, len(q.later))
			}
		}
		if bound := 2*keys + replacedAppointments + 1; most > bound {
			t.Errorf("%d appointments of %d keys, want at most %d", most, keys, bound)
		}
		for range keys {
			got := next(t, q)
			if took := time.Since(last[got]); took != time.Hour {
				t.Errorf("%v is ready after %v", got, took)
			}
			q.Done(got, false, 0)
			delete(last, got)
		}
		if len(last) > 0 || len(q.States()) > 0 || len(q.later) > 0 {
			t.Errorf("left: %v %v %v", last, q.States(), q.later)
		}
	})
}

// BenchmarkQueue hands out 1,000 keys of ten namespaces.
func BenchmarkQueue(b *testing.B) {
	q := NewQueue(10)
	defer q.Close()
	keys := make([]types.NamespacedName, 1000)
	for i := range keys {
		keys[i] = key(fmt.Sprint(i%10), fmt.Sprint(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, one := range keys {
			q.Add(one)
		}
		for range keys {
			one, _ := q.Get()
			q.Done(one, false, 0)
		}
	}
}
