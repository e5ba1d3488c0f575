// SPDX-License-Identifier: Apache-2.0

package reflection

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

// queue holds what is to be looked at, each object at most once. It is fair: namespaces take turns, no namespace has all workers, and an
// object that failed waits by itself. The queues of work queues known elsewhere have one line for all, so a namespace with a thousand
// failing objects stands before one with a single good one.
type queue struct {
	// share is how many objects of one namespace are worked on at once.
	share int

	mu     sync.Mutex
	wake   *sync.Cond
	lanes  map[string]*lane
	turns  []*lane // those with something to do, and a worker left to do it
	states map[types.NamespacedName]*state
	later  appointments
	timer  *time.Timer
	paused bool
	closed bool
}

// lane is one namespace.
type lane struct {
	ready   []types.NamespacedName
	working int
	inTurn  bool
}

// state of an object that waits, is worked on, or has failed.
type state struct {
	queued, working, again bool
	failures               int
	at                     time.Time // zero: no appointment
}

func newQueue(workers int) *queue {
	q := &queue{share: max(1, workers-max(1, workers/4)), lanes: map[string]*lane{}, states: map[types.NamespacedName]*state{}}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// add asks for a look at an object, now.
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
		s.again = true
	case !s.queued:
		s.queued = true
		l := q.lanes[key.Namespace]
		if l == nil {
			l = &lane{}
			q.lanes[key.Namespace] = l
		}
		l.ready = append(l.ready, key)
		q.turn(l)
	}
}

// turn puts a namespace in line, if it is its turn.
func (q *queue) turn(l *lane) {
	if !l.inTurn && len(l.ready) > 0 && l.working < q.share {
		l.inTurn = true
		q.turns = append(q.turns, l)
		q.wake.Signal()
	}
}

// addAfter asks for a look later; an earlier appointment stays.
func (q *queue) addAfter(key types.NamespacedName, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.appoint(key, wait)
}

func (q *queue) appoint(key types.NamespacedName, wait time.Duration) {
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

// due puts in line what has an appointment now. One that was made before another is only found to be void here.
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

// get waits for an object to look at; false once the queue is closed.
func (q *queue) get() (types.NamespacedName, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (q.paused || len(q.turns) == 0) {
		q.wake.Wait()
	}
	if q.closed {
		return types.NamespacedName{}, false
	}
	l := q.turns[0]
	q.turns[0] = nil
	q.turns = q.turns[1:]
	key := l.ready[0]
	l.ready = l.ready[1:]
	l.inTurn = false
	l.working++
	q.turn(l)
	s := q.states[key]
	s.queued, s.working = false, true
	return key, true
}

// done says how the look at an object ended: it failed and is looked at again after a while that doubles each time, or it is to be looked at
// after wait, if that is not zero.
func (q *queue) done(key types.NamespacedName, failed bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, l := q.states[key], q.lanes[key.Namespace]
	if s == nil || l == nil {
		return
	}
	s.working = false
	l.working--
	switch {
	case failed:
		s.failures++
		wait = min(lastBackoff, firstBackoff<<min(s.failures-1, 20))
		wait += time.Duration(rand.Int64N(int64(wait)/4 + 1)) //nolint:gosec // no secret
	default:
		s.failures = 0
	}
	again := s.again
	s.again = false
	switch {
	case again && !failed, again && s.failures <= 1:
		q.put(key) // there is news since
	case wait > 0:
		q.appoint(key, wait)
	}
	if !s.queued && s.at.IsZero() && s.failures == 0 {
		delete(q.states, key)
	}
	q.turn(l)
	if l.working == 0 && len(l.ready) == 0 {
		delete(q.lanes, key.Namespace)
	}
}

// pause stops handing out, resume goes on and looks at once at all that has failed: what failed for them all is over.
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

// retry looks at once at what has failed in a namespace: the API server that may have been the reason is back. Empty: in all.
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

// close ends all that wait in get.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.wake.Broadcast()
}

// length is how many objects wait now, not counting appointments.
func (q *queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		n += len(l.ready)
	}
	return n
}

type appointment struct {
	key types.NamespacedName
	at  time.Time
}

// appointments is a heap, the next one first.
type appointments []appointment

func (a appointments) Len() int           { return len(a) }
func (a appointments) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a appointments) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *appointments) Push(x any) {
	if next, ok := x.(appointment); ok {
		*a = append(*a, next)
	}
}

func (a *appointments) Pop() any {
	last := len(*a) - 1
	next := (*a)[last]
	*a = (*a)[:last]
	return next
}
