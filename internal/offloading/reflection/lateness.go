// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync/atomic"
	"time"
)

const (
	// lateAfter is how long a key may wait for a worker before its queue is late.
	lateAfter = 100 * time.Millisecond
	// lateFor is for how long one key that waited too long slows the other queue, and slowStarts how many keys that then starts at most.
	lateFor    = time.Second
	slowStarts = 2
)

// lateness slows one queue while keys of another one wait too long. A burst of new pods otherwise takes the processors that report which pods have become
// Ready. Only how long a key has waited for a worker counts: a peer or a namespace that does not answer slows nothing.
type lateness struct {
	until  atomic.Int64 // Unix time in nanoseconds
	onTime func()
}

// observe is called with the time that a key has waited, and whether others wait.
func (l *lateness) observe(wait time.Duration, more bool) {
	switch {
	case wait >= lateAfter:
		l.until.Store(time.Now().Add(lateFor).UnixNano())
	case !more || wait < lateAfter/2:
		if l.until.Swap(0) != 0 && l.onTime != nil {
			l.onTime()
		}
	}
}

func (l *lateness) late() bool { return time.Now().UnixNano() < l.until.Load() }

// held reports whether a key must not be started now: the other queue is late, and enough keys were started within lateFor and are still worked on. Those
// that are worked on for longer do not count, since they may wait for the peer. The caller holds the lock.
func (q *queue) held() bool {
	if q.yieldsTo == nil || !q.yieldsTo.late() {
		return false
	}
	recent, now := 0, time.Now()
	for _, at := range q.started {
		if now.Sub(at) < lateFor {
			recent++
		}
	}
	if recent < slowStarts {
		return false
	}
	if !q.rechecking {
		q.rechecking = true
		time.AfterFunc(lateFor, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.rechecking = false
			q.wake.Broadcast()
		})
	}
	return true
}

// recheck wakes the workers that held made wait.
func (q *queue) recheck() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake.Broadcast()
}
