// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"golang.org/x/time/rate"
)

// A peer decides how often its statuses change and how long they are, and this cluster stores each write whole until its etcd is compacted, by default every
// five minutes: some 200 MiB at most with these. A burst of ten thousand pods stays below them.
const (
	statusBurst     = 32 << 20
	statusPerSecond = 512 << 10
	// leastStatus is what a short one counts, for the work of the request.
	leastStatus = 8 << 10
)

func newStatusBudget() *rate.Limiter { return rate.NewLimiter(statusPerSecond, statusBurst) }

// SpendStatus returns how long a status of the peer, of so many bytes, has to wait; 0: it may be written now, and counts.
func (e *Engine) SpendStatus(bytes int, now time.Time) time.Duration {
	spent := e.statuses.ReserveN(now, min(max(bytes, leastStatus), statusBurst))
	wait := spent.DelayFrom(now)
	if wait > 0 {
		spent.CancelAt(now)
	}
	return wait
}
