// SPDX-License-Identifier: Apache-2.0

// Package ratelimit bounds how often strangers ask: each address, and all of them. Its memory is bounded, too.
//
// It must not know what is asked; the time comes in. TestLimiter proves it.
package ratelimit

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Pace is how many requests are answered: per second, and at once after a pause.
type Pace struct {
	PerSecond rate.Limit
	Burst     int
}

const (
	// maxAddresses bounds memory. Who has more addresses than that meets the total.
	maxAddresses = 1024
	// penalty is what Punish takes, in requests.
	penalty = 10
)

// Limiter bounds how often is asked, from each address and by all.
type Limiter struct {
	each, all Pace

	mu     sync.Mutex
	total  *rate.Limiter
	recent *list.List // of *visitor, the last one to ask in front
	by     map[netip.Prefix]*list.Element
}

type visitor struct {
	from   netip.Prefix
	budget *rate.Limiter
}

// New returns a limiter with all budgets full.
func New(each, all Pace) *Limiter {
	return &Limiter{
		each: each, all: all, total: rate.NewLimiter(all.PerSecond, all.Burst),
		recent: list.New(), by: map[netip.Prefix]*list.Element{},
	}
}

// Admit returns zero, or how long to wait before asking again.
func (l *Limiter) Admit(from netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := l.visitor(from)
	// The visitor's own budget first: one who asks too often takes nothing from the others.
	if wait := shortage(budget, l.each, now); wait > 0 {
		return wait
	}
	if wait := shortage(l.total, l.all, now); wait > 0 {
		return wait
	}
	budget.AllowN(now, 1)
	l.total.AllowN(now, 1)
	return 0
}

// Punish takes more from a visitor's budget. It never sinks deeper than one burst: the ban ends.
func (l *Limiter) Punish(from netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := l.visitor(from)
	cost := min(penalty, int(budget.TokensAt(now))+l.each.Burst)
	if cost > 0 {
		budget.ReserveN(now, cost)
	}
}

func (l *Limiter) visitor(from netip.Addr) *rate.Limiter {
	network := NetworkOf(from)
	if element, known := l.by[network]; known {
		l.recent.MoveToFront(element)
		return element.Value.(*visitor).budget
	}
	if l.recent.Len() >= maxAddresses {
		oldest := l.recent.Back()
		delete(l.by, oldest.Value.(*visitor).from)
		l.recent.Remove(oldest)
	}
	budget := rate.NewLimiter(l.each.PerSecond, l.each.Burst)
	l.by[network] = l.recent.PushFront(&visitor{from: network, budget: budget})
	return budget
}

// NetworkOf is what one visitor can choose addresses from: with IPv6, all of a /64.
func NetworkOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	network, _ := from.Prefix(bits) // an address that is none becomes the prefix that is none
	return network
}

func shortage(budget *rate.Limiter, p Pace, now time.Time) time.Duration {
	missing := 1 - budget.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(missing/float64(p.PerSecond)*float64(time.Second)))
}
