// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"time"
)

const (
	// smallest is a packet that every path carries, usual one that nearly every path carries.
	smallest, usual = 576, 1200
	// tries is how often one size is sent before it counts as too large.
	tries = 3
	// verifyEvery is how often the size that passed is sent again, growEvery how often larger ones are tried.
	verifyEvery = 10 * time.Second
	growEvery   = 5 * time.Minute
)

type phase int

const (
	resting phase = iota
	searching
	verifying
)

// path searches for the largest packet that passes, in bytes of IP. Where ICMP is blocked, packets that are too large vanish silently. So
// path believes only replies, and gives a size up only after three losses while small packets sent at the same times came back: in
// an outage all sizes are lost.
type path struct {
	max int
	mtu int // the result; 0 while there is none
	up  bool

	phase phase
	// low came back, high did not.
	low, high int
	// shrinking: the result does not pass any more, so the first smaller size that passes replaces it at once.
	shrinking bool
	// size is under test. tried counts its losses; asked is when it was sent last, zero if it was not.
	size, tried int
	asked       time.Time
	timeout     time.Duration

	verify, grow time.Time
}

// step returns the size of a packet to send now, together with a small one; 0 for none. largest is what the local device takes, echoed is
// when the newest answered small packet left.
func (p *path) step(now time.Time, up bool, largest int, roundTrip time.Duration, echoed time.Time) int {
	if !up || largest < smallest {
		p.up, p.phase = false, resting
		return 0
	}
	p.timeout = max(200*time.Millisecond, 2*roundTrip)
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
	case p.phase == resting || !p.asked.IsZero() && now.Sub(p.asked) < p.timeout:
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

// next returns when step has something to do; zero for never.
func (p *path) next() time.Time {
	switch {
	case !p.up:
		return time.Time{}
	case p.phase != resting:
		return p.asked.Add(p.timeout) // in the past if it was not sent yet
	case p.mtu < p.max && p.grow.Before(p.verify):
		return p.grow
	}
	return p.verify
}

// receive records a reply of a size.
func (p *path) receive(now time.Time, size int) {
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

// refused records that the size under test does not pass.
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

// ask sets the size to send next.
func (p *path) ask(size int) {
	p.size, p.tried, p.asked = size, 0, time.Time{}
}

func (p *path) rest(now time.Time) {
	if p.phase == searching {
		p.grow = now.Add(growEvery)
		if p.mtu == 0 {
			p.grow = now.Add(verifyEvery) // nothing passed although small packets do, so the result must be wrong soon
		}
	}
	p.phase, p.verify = resting, now.Add(verifyEvery)
}
