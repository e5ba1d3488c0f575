// SPDX-License-Identifier: Apache-2.0

// Package failures counts the pods that fail in a peer, and decides when the node gets no more. It must not know why pods fail. Its proof is breaker_test.go.
package failures

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A peer may fail every pod as it comes. A ReplicaSet replaces failed pods without delay, so such a peer would keep the controllers of this cluster
// busy and fill its store with dead pods. A pod that is restarted for ever fails rarely: it is evicted, or its node has no capacity for it.
const (
	// DefaultLimit is how many pods may fail within the window.
	DefaultLimit = 50
	window       = 10 * time.Minute
	// pause is for how long the node gets no pods after the limit is reached.
	pause = 10 * time.Minute
)

// Breaker opens when too many pods of the node fail.
type Breaker struct {
	// Limit is how many pods may fail within ten minutes.
	Limit int
	// Changed is called when the result of Message has changed.
	Changed func()

	mu     sync.Mutex
	failed []time.Time
	until  time.Time
}

// Record counts a pod that failed. It returns true if that opens the breaker.
func (b *Breaker) Record(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.until) {
		return false
	}
	b.failed = slices.DeleteFunc(b.failed, func(at time.Time) bool { return now.Sub(at) >= window })
	if b.failed = append(b.failed, now); len(b.failed) < b.Limit {
		return false
	}
	b.failed, b.until = nil, now.Add(pause)
	if b.Changed != nil {
		b.Changed()
		time.AfterFunc(pause, b.Changed)
	}
	return true
}

// Message returns why the node gets no pods; empty if it gets them.
func (b *Breaker) Message(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.until) {
		return ""
	}
	return fmt.Sprintf("%d pods that are restarted for ever failed in the remote cluster within %s: no pods are scheduled there until %s; ask its "+
		"administrator why they fail, and see their messages",
		b.Limit, window, b.until.UTC().Format(time.RFC3339))
}
