// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// bucket has the bytes that a peer may write at once. It fills with time.
type bucket struct {
	level float64
	at    time.Time
}

// take takes bytes, or returns after which time they are there. With dryRun, it takes none. What is larger than a full bucket is taken when it is full.
func (b *bucket) take(bytes, rate, burst int64, now time.Time, dryRun bool) (wait time.Duration) {
	if passed := now.Sub(b.at); !b.at.IsZero() && passed > 0 {
		b.level = min(float64(burst), b.level+passed.Seconds()*float64(rate))
	}
	if b.at.Before(now) {
		b.at = now
	}
	if missing := float64(min(bytes, burst)) - b.level; missing > 0 {
		return time.Duration(missing/float64(rate)*float64(time.Second)).Truncate(time.Second) + time.Second
	}
	if !dryRun {
		b.level -= float64(bytes)
	}
	return 0
}
