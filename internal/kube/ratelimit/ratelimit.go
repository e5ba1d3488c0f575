// SPDX-License-Identifier: Apache-2.0

// Package ratelimit limits how often something is done for each key, for example for each namespace or network, so that
// a key that asks for too much takes nothing from the others. Its memory is bounded.
//
// It must not know what is limited. The caller passes the time. The proof is TestLimiter, and TestShare of the proxy and TestAttackReaders of the
// gateway for Excess.
package ratelimit

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter is a rate.Limiter per key. It is safe for concurrent use.
type Limiter[K comparable] struct {
	perSecond   rate.Limit
	burst, keys int

	mu     sync.Mutex
	recent *list.List // of entry[K], the most recently used in front
	byKey  map[K]*list.Element
}

type entry[K comparable] struct {
	key     K
	limiter *rate.Limiter
}

// New returns a limiter that allows each key a burst, and after that so many events per second. It keeps the given
// number of keys; a key that was not among the most recently used starts with a full burst.
func New[K comparable](perSecond rate.Limit, burst, keys int) *Limiter[K] {
	return &Limiter[K]{perSecond: perSecond, burst: burst, keys: keys, recent: list.New(), byKey: map[K]*list.Element{}}
}

// Get returns the limiter of a key.
func (l *Limiter[K]) Get(key K) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if element, found := l.byKey[key]; found {
		l.recent.MoveToFront(element)
		return element.Value.(entry[K]).limiter
	}
	if l.recent.Len() >= l.keys {
		oldest := l.recent.Remove(l.recent.Back()).(entry[K])
		delete(l.byKey, oldest.key)
	}
	limiter := rate.NewLimiter(l.perSecond, l.burst)
	l.byKey[key] = l.recent.PushFront(entry[K]{key, limiter})
	return limiter
}

// Allow reports whether an event of the key may happen now.
func (l *Limiter[K]) Allow(key K, now time.Time) bool { return l.Get(key).AllowN(now, 1) }
