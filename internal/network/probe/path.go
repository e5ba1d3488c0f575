// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"time"
)

const (
	// smallest is what every path carries, usual what nearly every one does.
	smallest, usual = 576, 1200
	// tries of one size before it counts as too large.
	tries = 3
	// verifyEvery: one packet of the size that passed. growEvery: perhaps larger ones pass by now.
	verifyEvery = 10 * time.Second
	growEvery   = 5 * time.Minute
)

type phase int

const (
	resting phase = iota
	searching
	verifying
)

// path searches the largest packet that passes, in bytes of IP. Packets that are too large vanish without a word where ICMP is
// blocked, so only what came back is believed, and only what did not come back three times is given up, while small packets that were sent
// at the same times did come back: in an outage all sizes are lost.
type path struct {
	max int
	mtu int // the result; 0 while there is none
	up  bool

	phase phase
	// low came back, high did not.
	low, high int
	// shrinking: the result does not pass any more, so anything smaller that passes replaces it at once.
	shrinking bool
	// size was tried in vain so often, and is on its way since asked; zero if not.
	size, tried int
	asked       time.Time
	patience    time.Duration

	verify, grow time.Time
}

// step gives the size of a packet to send now, together with a small one; 0 for none. largest is what the own device takes, echoed when the
// newest small packet left that came back.
func (p *path) step(now time.Time, up bool, largest int, roundTrip time.Duration, echoed time.Time) int {
	if !up || largest < smallest {
		p.up, p.phase = false, resting
		return 0
	}
	p.patience = max(200*time.Millisecond, 2*roundTrip)
	switch {
	case !p.up || p.max != largest:
		p.up, p.max = true, largest
		p.mtu = min(p.mtu, largest)
		p.search(now, 0, largest+1)
	case p.phase == resting && p.mtu < p.max && !now.Before(p.grow):
		p.search(now, p.mtu, p.max+1)
	case p.phase == resting && !now.Before(p.verify):
		p.phase = verifying
		p.ask(p.mtu)
	case p.phase == resting || !p.asked.IsZero() && now.Sub(p.asked) < p.patience:
		return 0
	case !p.asked.IsZero() && !echoed.Before(p.asked):
		if p.tried++; p.tried >= tries {
			p.refused(now)
		}
	}
	if p.phase == resting {
		return 0
	}
	p.asked = now
	return p.size
}

// next is when step has something to do.
func (p *path) next() time.Time {
	switch {
	case !p.up:
		return time.Time{}
	case p.phase != resting:
		return p.asked.Add(p.patience) // long ago, if it was not sent yet
	case p.mtu < p.max && p.grow.Before(p.verify):
		return p.grow
	}
	return p.verify
}

// hear takes a reply of that size.
func (p *path) hear(now time.Time, size int) {
	switch {
	case p.phase == resting || size < p.size || size > p.max:
	case p.phase == verifying:
		p.rest(now)
	case size < p.high:
		p.low = max(p.low, size)
		if p.shrinking {
			p.shrinking, p.mtu = false, p.low
		}
		p.choose(now)
	}
}

// refused: the size on its way does not pass.
func (p *path) refused(now time.Time) {
	switch p.phase {
	case verifying:
		p.shrinking = true
		p.search(now, 0, p.size)
	case searching:
		p.high = p.size
		p.choose(now)
	}
}

func (p *path) search(now time.Time, low, high int) {
	p.phase, p.low, p.high = searching, low, high
	p.choose(now)
}

func (p *path) choose(now time.Time) {
	if p.high-p.low <= 1 || p.high <= smallest {
		p.mtu, p.shrinking = p.low, false
		p.rest(now)
		return
	}
	for _, size := range []int{p.max, p.mtu, usual, smallest} {
		if size > p.low && size < p.high && (size != smallest || p.low == 0) {
			p.ask(size)
			return
		}
	}
	p.ask((p.low + p.high) / 2)
}

// ask says which size is to be sent next.
func (p *path) ask(size int) {
	p.size, p.tried, p.asked = size, 0, time.Time{}
}

func (p *path) rest(now time.Time) {
	if p.phase == searching {
		p.grow = now.Add(growEvery)
		if p.mtu == 0 {
			p.grow = now.Add(verifyEvery) // nothing passed, although small ones do: it cannot stay so
		}
	}
	p.phase, p.verify = resting, now.Add(verifyEvery)
}
