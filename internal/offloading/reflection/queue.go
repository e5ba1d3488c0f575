// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"container/heap"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/kube/fairqueue"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Minute
)

// queue holds the keys to reconcile, each at most once. It is fair: namespaces take turns, and no namespace gets all workers (fairqueue.RoundRobin). The work
// queue of client-go lacks what we need in addition: it cannot pause while the peer is unreachable, it cannot retry the failed keys of one namespace, and an event
// of a key that keeps failing would skip the backoff.
type queue struct {
	mu     sync.Mutex
	wake   *sync.Cond
	ready  *fairqueue.RoundRobin[types.NamespacedName]
	states map[types.NamespacedName]*state
	later  schedule
	timer  *time.Timer
	paused bool
	closed bool
	// observed learns how long keys wait for a worker. While yieldsTo is late, few keys are started. Both may be nil.
	observed, yieldsTo *lateness
	started            map[types.NamespacedName]time.Time // of the keys that are worked on
	rechecking         bool
}

// state of a key that is ready, is worked on, is scheduled, or has failed.
type state struct {
	queued, working bool
	// dirty: the key was added while a worker had it.
	dirty    bool
	failures int
	at       time.Time // when the key is due; zero: not scheduled
	since    time.Time // when the key became ready
}

func newQueue(workers int) *queue {
	ready := fairqueue.NewRoundRobin(workers, func(key types.NamespacedName) string { return key.Namespace })
	q := &queue{ready: ready, states: map[types.NamespacedName]*state{}, started: map[types.NamespacedName]time.Time{}}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// add makes a key ready at once.
func (q *queue) add(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(key)
}

func (q *queue) put(key types.NamespacedName) {
	if q.closed {
		return
	}
	s := q.states[key]
	if s == nil {
		s = &state{}
		q.states[key] = s
	}
	s.at = time.Time{}
	switch {
	case s.working:
		s.dirty = true
	case !s.queued:
		s.queued, s.since = true, time.Now()
		q.ready.Push(key)
		q.signal()
	}
}

// signal wakes a worker if there is a key for it.
func (q *queue) signal() {
	if q.ready.Len() > 0 {
		q.wake.Signal()
	}
}

// addAfter makes a key ready after wait, unless it is due earlier.
func (q *queue) addAfter(key types.NamespacedName, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.scheduleAfter(key, wait)
}

func (q *queue) scheduleAfter(key types.NamespacedName, wait time.Duration) {
	if q.closed {
		return
	}
	s := q.states[key]
	if s == nil {
		s = &state{}
		q.states[key] = s
	}
	at := time.Now().Add(wait)
	if s.queued || !s.at.IsZero() && s.at.Before(at) {
		return
	}
	s.at = at
	heap.Push(&q.later, appointment{key: key, at: at})
	if q.later[0].key == key {
		q.setTimer()
	}
}

func (q *queue) setTimer() {
	if len(q.later) == 0 {
		return
	}
	wait := time.Until(q.later[0].at)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.due)
		return
	}
	q.timer.Reset(wait)
}

// due makes the keys ready whose time has come. It ignores appointments that a later call has replaced.
func (q *queue) due() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.later) > 0 && !q.later[0].at.After(now) {
		next, _ := heap.Pop(&q.later).(appointment)
		if s := q.states[next.key]; s != nil && s.at.Equal(next.at) {
			q.put(next.key)
		}
	}
	q.setTimer()
}

// get waits for a ready key; false once the queue is closed.
func (q *queue) get() (types.NamespacedName, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (q.paused || q.ready.Len() == 0 || q.held()) {
		q.wake.Wait()
	}
	if q.closed {
		return types.NamespacedName{}, false
	}
	key := q.ready.Pop()
	q.signal()
	s, now := q.states[key], time.Now()
	s.queued, s.working = false, true
	q.started[key] = now
	if q.observed != nil {
		q.observed.observe(now.Sub(s.since), q.ready.Len() > 0)
	}
	return key, true
}

// done ends the work on a key. A key that failed is ready again after a backoff that doubles with each failure; any other key after wait, unless that is 0.
// A key that was added meanwhile is ready at once, unless it keeps failing.
func (q *queue) done(key types.NamespacedName, failed bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.states[key]
	if s == nil {
		return
	}
	s.working = false
	delete(q.started, key)
	q.ready.Release(key)
	switch {
	case failed:
		s.failures++
		wait = min(lastBackoff, firstBackoff<<min(s.failures-1, 20))
		wait += time.Duration(rand.Int64N(int64(wait)/4 + 1)) //nolint:gosec // no secret
	default:
		s.failures = 0
	}
	dirty := s.dirty
	s.dirty = false
	switch {
	case dirty && !failed, dirty && s.failures <= 1:
		q.put(key)
	case wait > 0:
		q.scheduleAfter(key, wait)
	}
	if !s.queued && s.at.IsZero() && s.failures == 0 {
		delete(q.states, key)
	}
	q.signal()
}

// pause stops handing out keys. resume continues, and makes all keys that have failed ready at once: the cause that they shared is over.
func (q *queue) pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
}

func (q *queue) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.paused {
		return
	}
	q.paused = false
	for key, s := range q.states {
		if s.failures > 0 {
			s.failures = 0
			q.put(key)
		}
	}
	q.wake.Broadcast()
}

// retry makes the failed keys of a namespace ready at once, because the API server that may have caused the failures is back. "": of all namespaces.
func (q *queue) retry(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, s := range q.states {
		if s.failures > 0 && (namespace == "" || key.Namespace == namespace) {
			s.failures = 0
			q.put(key)
		}
	}
}

// close makes get return false.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.wake.Broadcast()
}

type appointment struct {
	key types.NamespacedName
	at  time.Time
}

// schedule is a heap with the next appointment first.
type schedule []appointment

func (a schedule) Len() int           { return len(a) }
func (a schedule) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a schedule) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *schedule) Push(x any) {
	if next, ok := x.(appointment); ok {
		*a = append(*a, next)
	}
}

func (a *schedule) Pop() any {
	last := len(*a) - 1
	next := (*a)[last]
	*a = (*a)[:last]
	return next
}
