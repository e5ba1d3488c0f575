// SPDX-License-Identifier: Apache-2.0

// Package ratelimit limits the requests of unauthenticated clients: of each network, and in total. Its memory is bounded.
//
// It must not know what is requested. The caller passes the time. The proof is TestLimiter.
package ratelimit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// Pace is how many requests are admitted: per second, and at once after a pause.
type Pace struct {
	PerSecond rate.Limit
	Burst     int
}

const (
	// maxNetworks bounds memory. The total limits a client with more networks.
	maxNetworks = 1024
	// penalty is what Charge takes, in requests.
	penalty = 10
)

// Limiter limits requests per network and in total.
type Limiter struct {
	each, all Pace
	budgets   *ratelimit.Limiter[netip.Prefix]

	mu    sync.Mutex // between the check and the use of both budgets
	total *rate.Limiter
}

// New returns a limiter with all budgets full.
func New(each, all Pace) *Limiter {
	return &Limiter{
		each: each, all: all, total: rate.NewLimiter(all.PerSecond, all.Burst),
		budgets: ratelimit.New[netip.Prefix](each.PerSecond, each.Burst, maxNetworks),
	}
}

// Admit returns zero, or how long to wait before the next request.
func (l *Limiter) Admit(from netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := l.budgets.Get(ratelimit.NetworkOf(from))
	// The network's own budget first: a network that exceeds it takes nothing from the total.
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

// Charge takes more from a network's budget, down to one negative burst at most, so that the ban ends.
func (l *Limiter) Charge(from netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := l.budgets.Get(ratelimit.NetworkOf(from))
	cost := min(penalty, int(budget.TokensAt(now))+l.each.Burst)
	if cost > 0 {
		budget.ReserveN(now, cost)
	}
}

func shortage(budget *rate.Limiter, p Pace, now time.Time) time.Duration {
	missing := 1 - budget.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(missing/float64(p.PerSecond)*float64(time.Second)))
}
