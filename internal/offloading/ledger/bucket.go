// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// bucket has the bytes that may be written at once. It fills with time.
type bucket struct {
	level float64
	at    time.Time
}

// wait fills the bucket, and returns after which time bytes are there. What is larger than a full bucket may be taken when it is full.
func (b *bucket) wait(bytes, rate, burst int64, now time.Time) time.Duration {
	if !b.at.IsZero() {
		b.level += max(now.Sub(b.at), 0).Seconds() * float64(rate)
	}
	b.level = min(b.level, float64(burst))
	if b.at.Before(now) {
		b.at = now
	}
	missing := float64(min(bytes, burst)) - b.level
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/float64(rate)*float64(time.Second)).Truncate(time.Second) + time.Second
}

// pace returns why and how long a peer has to wait before it writes, and otherwise takes the bytes. All peers together have one bucket; a peer that finds it
// empty still has its part, which fills with the rate of all divided by the number of peers. What peers take as their parts is taken from all, so the sum
// stays within the rate of all and twice its burst.
func (l *Ledger) pace(p *peer, c Change) Verdict {
	bytes, limits, peers := c.Use[Bytes], l.limits, int64(len(l.peers))
	tooFast := func(who string, rate, burst int64, wait time.Duration) Verdict {
		return Verdict{Wait: wait, Problem: who + " more than " + text(Bytes, rate) + " a second, after a burst of " + text(Bytes, burst) + ": the next " +
			text(Bytes, bytes) + " are accepted in " + wait.String() + "; it tries again on its own"}
	}
	if limits.Rate > 0 {
		if wait := p.tokens.wait(bytes, limits.Rate, limits.Burst, c.Now); wait > 0 {
			return tooFast("the peer writes", limits.Rate, limits.Burst, wait)
		}
	}
	asPart := false
	if limits.AllRate > 0 {
		part := p.part.wait(bytes, max(limits.AllRate/peers, 1), limits.AllBurst/peers, c.Now)
		if wait := l.tokens.wait(bytes, limits.AllRate, limits.AllBurst, c.Now); wait > 0 && part > 0 {
			return tooFast("all peers together write", limits.AllRate, limits.AllBurst, min(wait, part))
		} else if wait > 0 {
			asPart = true
		}
	}
	if !c.DryRun {
		p.tokens.level -= float64(bytes)
		l.tokens.level -= float64(bytes)
		if asPart {
			p.part.level -= float64(bytes)
		}
	}
	return Verdict{}
}
