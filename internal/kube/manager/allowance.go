// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// mostIdle is how many namespaces an Allowance knows before it forgets those that have used nothing of theirs lately.
const mostIdle = 1000

// Allowance bounds how often something is done for each namespace, so that one that wants too much takes nothing from the others.
type Allowance struct {
	perSecond rate.Limit
	burst     int

	mu     sync.Mutex
	spent  map[string]*rate.Limiter
	forget int
}

// NewAllowance allows each namespace a burst, and after that so many per second.
func NewAllowance(perSecond, burst int) *Allowance {
	return &Allowance{perSecond: rate.Limit(perSecond), burst: burst, spent: map[string]*rate.Limiter{}, forget: mostIdle}
}

// Allow says whether it may be done once more for a namespace, now.
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
