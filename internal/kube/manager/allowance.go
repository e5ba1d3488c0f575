// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// mostIdle is the number of namespaces from which on an Allowance forgets those whose allowance is complete again.
const mostIdle = 1000

// Allowance is a rate limiter per namespace, so that a namespace with too many actions takes nothing from the others.
type Allowance struct {
	perSecond rate.Limit
	burst     int

	mu     sync.Mutex
	spent  map[string]*rate.Limiter
	forget int
}

// NewAllowance returns an Allowance of perSecond actions per namespace, with a burst.
func NewAllowance(perSecond, burst int) *Allowance {
	return &Allowance{perSecond: rate.Limit(perSecond), burst: burst, spent: map[string]*rate.Limiter{}, forget: mostIdle}
}

// Allow reports whether one more action is allowed for a namespace now, and counts it.
func (a *Allowance) Allow(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spent[namespace] == nil {
		if len(a.spent) >= a.forget {
			now := time.Now()
			maps.DeleteFunc(a.spent, func(_ string, one *rate.Limiter) bool { return one.TokensAt(now) >= float64(a.burst) })
			a.forget = max(mostIdle, 2*len(a.spent))
		}
		a.spent[namespace] = rate.NewLimiter(a.perSecond, a.burst)
	}
	return a.spent[namespace].Allow()
}
