// SPDX-License-Identifier: Apache-2.0

package fairqueue

import (
	"container/heap"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Minute
)

// Queue holds the keys to reconcile, each at most once. It is fair: namespaces take turns, and no namespace gets all workers (RoundRobin). The work
// queue of client-go lacks what we need in addition: it cannot pause while the peer is unreachable, it cannot retry the failed keys of one namespace,
// and an event of a key that keeps failing would skip the backoff.
type Queue struct {
	mu     sync.Mutex
	wake   *sync.Cond
	ready  *RoundRobin[types.NamespacedName]
	states map[types.NamespacedName]*state
	later  schedule
	timer  *time.Timer
	paused bool
	closed bool
}

// state of a key that is ready, is worked on, is scheduled, or has failed.
type state struct {
	queued, working bool
	// dirty: the key was added while a worker had it.
	dirty    bool
	failures int
	at       time.Time // when the key is due; zero: not scheduled
}

// NewQueue returns an empty queue for so many workers.
func NewQueue(workers int) *Queue {
	ready := NewRoundRobin(workers, func(key types.NamespacedName) string { return key.Namespace })
	q := &Queue{ready: ready, states: map[types.NamespacedName]*state{}}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// Add makes a key ready at once.
func (q *Queue) Add(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(key)
}

// stateOf returns the state of a key, a new one if the queue does not know it. The caller holds the lock.
func (q *Queue) stateOf(key types.NamespacedName) *state {
	s := q.states[key]
	if s == nil {
		s = &state{}
		q.states[key] = s
	}
	return s
}

func (q *Queue) put(key types.NamespacedName) {
	if q.closed {
		return
	}
	s := q.stateOf(key)
	s.at = time.Time{}
	switch {
	case s.working:
		s.dirty = true
	case !s.queued:
		s.queued = true
		q.ready.Push(key)
		q.signal()
	}
}

// signal wakes a worker if there is a key for it.
func (q *Queue) signal() {
	if q.ready.Len() > 0 {
		q.wake.Signal()
	}
}

// AddAfter makes a key ready after wait, unless it is due earlier.
func (q *Queue) AddAfter(key types.NamespacedName, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.scheduleAfter(key, wait)
}

func (q *Queue) scheduleAfter(key types.NamespacedName, wait time.Duration) {
	if q.closed {
		return
	}
	s := q.stateOf(key)
	at := time.Now().Add(wait)
	if s.queued || !s.at.IsZero() && s.at.Before(at) {
		return
	}
	s.at = at
	q.push(appointment{key: key, at: at})
	if q.later[0].key == key {
		q.setTimer()
	}
}

// replacedAppointments bounds those that a later call has replaced, beyond one for each key.
const replacedAppointments = 64

// push adds an appointment. Those that were replaced stay in the heap until they are due, which may be far ahead, while each event of their key adds
// another one: when they are the larger part, push removes them.
func (q *Queue) push(next appointment) {
	heap.Push(&q.later, next)
	if len(q.later) <= 2*len(q.states)+replacedAppointments {
		return
	}
	valid := make(schedule, 0, len(q.states))
	for key, s := range q.states {
		if !s.at.IsZero() {
			valid = append(valid, appointment{key: key, at: s.at})
		}
	}
	q.later = valid
	heap.Init(&q.later)
}

func (q *Queue) setTimer() {
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
func (q *Queue) due() {
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

// Get waits for a ready key; false once the queue is closed.
func (q *Queue) Get() (types.NamespacedName, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (q.paused || q.ready.Len() == 0) {
		q.wake.Wait()
	}
	if q.closed {
		return types.NamespacedName{}, false
	}
	key := q.ready.Pop()
	q.signal()
	s := q.states[key]
	s.queued, s.working = false, true
	return key, true
}

// Done ends the work on a key. A key that failed is ready again after a backoff that doubles with each failure; any other key after wait, unless that is 0.
// A key that was added meanwhile is ready at once, unless it keeps failing.
func (q *Queue) Done(key types.NamespacedName, failed bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.states[key]
	if s == nil {
		return
	}
	s.working = false
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

// Work hands each key to process, one at a time, until the queue is closed. process returns after how long to process the key again, 0: once it is added
// again; or why the key has failed. Call it once per worker.
func (q *Queue) Work(process func(types.NamespacedName) (time.Duration, error)) {
	for {
		key, more := q.Get()
		if !more {
			return
		}
		wait, err := process(key)
		q.Done(key, err != nil, wait)
	}
}

// Pause stops handing out keys. Resume continues, and makes all keys that have failed ready at once: the cause that they shared is over.
func (q *Queue) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
}

func (q *Queue) Resume() {
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

// Retry makes the failed keys of a namespace ready at once, because the API server that may have caused the failures is back. "": of all namespaces.
func (q *Queue) Retry(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, s := range q.states {
		if s.failures > 0 && (namespace == "" || key.Namespace == namespace) {
			s.failures = 0
			q.put(key)
		}
	}
}

// Close makes get return false.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.wake.Broadcast()
}

// Share is how many keys of one namespace are worked on at the same time, at most.
func (q *Queue) Share() int { return q.ready.Share() }

// KeyState is what the queue knows of a key.
type KeyState struct {
	// Ready: it waits for a worker. Working: a worker has it.
	Ready, Working bool
	// Failures is how often it has failed in a row.
	Failures int
	// At is when it will be ready; zero if it waits for nothing.
	At time.Time
}

// States returns all keys that are ready, are worked on, are scheduled, or have failed.
func (q *Queue) States() map[types.NamespacedName]KeyState {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[types.NamespacedName]KeyState, len(q.states))
	for key, s := range q.states {
		all[key] = KeyState{Ready: s.queued, Working: s.working, Failures: s.failures, At: s.at}
	}
	return all
}

// Postpone makes a key that is scheduled due later, at that time; false if it is not scheduled. A test with it knows that nothing but Add, Retry or Resume made
// the key ready.
func (q *Queue) Postpone(key types.NamespacedName, at time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.states[key]
	if s == nil || s.at.IsZero() {
		return false
	}
	s.at = at
	q.push(appointment{key: key, at: at})
	return true
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
