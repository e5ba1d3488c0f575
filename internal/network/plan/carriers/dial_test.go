// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a     = netip.MustParseAddrPort("203.0.113.1:5871")
	b     = netip.MustParseAddrPort("203.0.113.2:5871")
	c     = netip.MustParseAddrPort("203.0.113.3:5871")
)

type dialled struct {
	At     time.Duration
	Target string
	Dial   int
}

// phone drives a dialer in steps of 10 ms. see returns what is observed at a time.
func phone(d *dialer, until time.Duration, targets func(time.Duration) []netip.AddrPort, see func(at time.Duration, d *dialer) Seen) (all []dialled) {
	last := dialled{}
	for at := time.Duration(0); at < until; at += 10 * time.Millisecond {
		d.step(start.Add(at), targets(at), see(at, d))
		now := dialled{at, d.target.String(), d.dial}
		if now.Target != last.Target || now.Dial != last.Dial {
			all, last = append(all, now), now
		}
	}
	return all
}

func fixed(targets ...netip.AddrPort) func(time.Duration) []netip.AddrPort {
	return func(time.Duration) []netip.AddrPort { return targets }
}

func newDialer() *dialer {
	return &dialer{jitter: func(time.Duration) time.Duration { return 0 }}
}

func nothing(time.Duration, *dialer) Seen { return Seen{} }

func replies(from, to time.Duration) func(time.Duration, *dialer) Seen {
	return func(at time.Duration, _ *dialer) Seen {
		switch {
		case at < from:
			return Seen{}
		case at < to:
			return Seen{Reply: start.Add(at), Timeout: s}
		}
		return Seen{Reply: start.Add(to), Timeout: s}
	}
}

const s, ms = time.Second, time.Millisecond

func TestDialer(t *testing.T) {
	for name, test := range map[string]struct {
		until   time.Duration
		targets func(time.Duration) []netip.AddrPort
		see     func(time.Duration, *dialer) Seen
		want    []dialled
	}{
		"one address, no gateway there": {
			20 * s, fixed(a), nothing,
			[]dialled{
				{0, a.String(), 1},
				{100 * ms, a.String(), 2},
				{300 * ms, a.String(), 3},
				{700 * ms, a.String(), 4},
				{2 * s, a.String(), 5},
				{5 * s, a.String(), 6},
				{9 * s, a.String(), 7},
				{14 * s, a.String(), 8},
				{19 * s, a.String(), 9},
			},
		},
		"addresses in turn, slower each round": {
			12 * s, fixed(a, b, c), nothing,
			[]dialled{
				{0, a.String(), 1},
				{100 * ms, a.String(), 2},
				{300 * ms, a.String(), 3},
				{700 * ms, a.String(), 4},
				{2 * s, b.String(), 5},
				{4 * s, c.String(), 6},
				{6 * s, a.String(), 7},
				{9 * s, b.String(), 8},
			},
		},
		"what works is left alone": {
			time.Hour / 60, fixed(a, b), replies(50*ms, time.Hour),
			[]dialled{{0, a.String(), 1}},
		},
		"a lost session is recreated": {
			25 * s, fixed(a), replies(50*ms, 10*s),
			[]dialled{{0, a.String(), 1}, {11 * s, a.String(), 2}, {12 * s, a.String(), 3}, {14 * s, a.String(), 4}, {18 * s, a.String(), 5}, {23 * s, a.String(), 6}},
		},
		"the same address first, then the others": {
			15 * s, fixed(a, b), replies(50*ms, 10*s),
			[]dialled{{0, a.String(), 1}, {11 * s, a.String(), 2}, {11500 * ms, b.String(), 3}, {13500 * ms, a.String(), 4}},
		},
		"a peer that cannot be dialled": {10 * s, fixed(), replies(50*ms, 5*s), []dialled{{0, netip.AddrPort{}.String(), 0}}},
		"the address changes while it works": {
			20 * s, func(at time.Duration) []netip.AddrPort {
				if at < 5*s {
					return []netip.AddrPort{a}
				}
				return []netip.AddrPort{b}
			}, replies(50*ms, 10*s),
			[]dialled{{0, a.String(), 1}, {11 * s, b.String(), 2}, {12 * s, b.String(), 3}, {14 * s, b.String(), 4}, {18 * s, b.String(), 5}},
		},
		"the address changes while nothing works": {
			2 * s, func(at time.Duration) []netip.AddrPort {
				if at < s {
					return []netip.AddrPort{a}
				}
				return []netip.AddrPort{b, c}
			}, nothing,
			[]dialled{
				{0, a.String(), 1},
				{100 * ms, a.String(), 2},
				{300 * ms, a.String(), 3},
				{700 * ms, a.String(), 4},
				{s, b.String(), 5},
				{1100 * ms, b.String(), 6},
				{1300 * ms, b.String(), 7},
				{1700 * ms, b.String(), 8},
			},
		},
		"one probe is enough": {
			time.Minute, fixed(a, b), replies(200*ms, time.Hour),
			[]dialled{{0, a.String(), 1}, {100 * ms, a.String(), 2}},
		},
		"keys were agreed, so the other end gets time": {
			12 * s, fixed(a, b), func(at time.Duration, d *dialer) Seen {
				if at < 50*ms {
					return Seen{}
				}
				return Seen{Handshake: start.Add(50 * ms)}
			},
			[]dialled{{0, a.String(), 1}, {10050 * ms, b.String(), 2}},
		},
		"the peer has recreated the session before us": {
			20 * s, fixed(a), func(at time.Duration, d *dialer) Seen {
				seen := replies(50*ms, 10*s)(at, d)
				if at >= 10900*ms {
					seen.Handshake = start.Add(10900 * ms)
				}
				if at >= 11100*ms {
					seen.Reply = start.Add(at)
				}
				return seen
			},
			[]dialled{{0, a.String(), 1}},
		},
		"the clock was set back": {
			15 * s, fixed(a), func(at time.Duration, d *dialer) Seen {
				seen := replies(50*ms, 10*s)(at, d)
				seen.Handshake = start.Add(10 * time.Minute)
				return seen
			},
			[]dialled{{0, a.String(), 1}, {11 * s, a.String(), 2}, {12 * s, a.String(), 3}, {14 * s, a.String(), 4}},
		},
		"the peer has agreed, and forgotten it": {
			13 * s, fixed(a), func(at time.Duration, d *dialer) Seen {
				seen := replies(50*ms, 10*s)(at, d)
				if d.dial == 2 {
					seen.Handshake = start.Add(11050 * ms)
				}
				return seen
			},
			[]dialled{{0, a.String(), 1}, {11 * s, a.String(), 2}, {12050 * ms, a.String(), 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, phone(newDialer(), test.until, test.targets, test.see)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Calling step only at the times that it returns gives the same result as calling it all the time.
func TestDialerSchedule(t *testing.T) {
	see := replies(300*ms, 10*s)
	want := phone(newDialer(), 30*s, fixed(a, b), see)
	d, last := newDialer(), dialled{}
	var got []dialled
	for at := time.Duration(0); at < 30*s; {
		next := d.step(start.Add(at), []netip.AddrPort{a, b}, see(at, d))
		if now := (dialled{at, d.target.String(), d.dial}); now.Dial != last.Dial {
			got, last = append(got, now), now
		}
		if next.IsZero() || !next.After(start.Add(at)) {
			t.Fatalf("at %v: next call at %v", at, next)
		}
		at = next.Sub(start)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// keyEnv is a peer that announces keys, and a tunnel that knows which of them had a handshake.
type keyEnv struct {
	*testing.T
	agreed map[string]time.Time
	keys   Keys
	at     time.Time
	others string
}

func newKeyEnv(t *testing.T) *keyEnv {
	return &keyEnv{T: t, agreed: map[string]time.Time{}, at: start}
}

func (b *keyEnv) check(what string, now, before string, want ...string) {
	b.Helper()
	b.at = b.at.Add(time.Second)
	claimed := Claimed{Now: now, Before: before, Elsewhere: func(key string) bool { return key == b.others }}
	if diff := cmp.Diff(want, b.keys.Step(b.at, claimed, func(key string) time.Time { return b.agreed[key] })); diff != "" {
		b.Errorf("%s: %s", what, diff)
	}
}

func TestRemoteKeys(t *testing.T) {
	b := newKeyEnv(t)
	b.check("first", "one", "", "one")
	b.agreed["one"] = start
	b.check("the first agrees", "one", "", "one")
	delete(b.agreed, "one") // a new attempt
	b.check("a new one is announced", "two", "", "one", "two")
	b.agreed["two"] = start
	b.check("an earlier handshake does not count", "two", "", "one", "two")
	b.agreed["one"] = b.at.Add(time.Second)
	b.check("the old one still agrees", "two", "", "one", "two")
	b.check("another new one", "three", "", "one", "three")
	b.check("back to the first", "one", "", "one")
	b.check("and again", "two", "", "one", "two")
	b.agreed["two"] = b.at.Add(time.Second)
	b.check("the new one agrees", "two", "", "two")
	b.check("the next", "four", "", "two", "four")
	b.at = b.at.Add(Forgotten - 3*time.Second)
	b.check("a minute and more later, and yet another", "five", "", "two", "five")
	b.at = b.at.Add(3 * time.Second)
	b.check("the old one is forgotten in the end", "five", "", "five")
	b.agreed["five"] = b.at
	b.check("it agrees", "five", "", "five")
	b.others = "five"
	b.check("an announced key stays, although another peer announces it", "five", "", "five")
	b.check("a remembered key does not", "six", "", "six")
}

// A gateway that starts while a peer changes its key accepts both, whichever is announced first, and follows the one with a handshake.
func TestRemoteKeysAfterRestart(t *testing.T) {
	t.Run("the present one, then the next", func(t *testing.T) {
		b := newKeyEnv(t)
		b.check("announced before any handshake", "present", "", "present")
		b.check("the next one is announced", "next", "", "present", "next")
		b.agreed["present"] = b.at
		b.check("the present one agrees", "next", "", "present", "next")
		b.agreed["next"] = b.at.Add(time.Second)
		b.check("the next one agrees", "next", "", "next")
	})
	t.Run("the next one, then the present, and again the next", func(t *testing.T) {
		b := newKeyEnv(t)
		b.check("announced", "next", "", "next")
		b.check("and the present one", "present", "", "next", "present")
		b.check("and again", "next", "", "next", "present")
		b.agreed["present"] = b.at.Add(time.Second)
		b.check("the present one agrees", "next", "", "present", "next")
		b.agreed["next"] = b.at.Add(time.Second)
		b.check("the next one agrees", "next", "", "next")
	})
	t.Run("both at once", func(t *testing.T) {
		b := newKeyEnv(t)
		b.check("announced", "next", "present", "present", "next")
		b.agreed["next"] = b.at.Add(time.Second)
		b.check("it was in use already", "next", "present", "next")
		b.check("and stays", "next", "present", "next")
	})
	t.Run("the tunnel that was left has agreed with the next", func(t *testing.T) {
		b := newKeyEnv(t)
		b.agreed["next"] = start.Add(-time.Minute)
		b.check("announced", "next", "present", "next")
	})
	t.Run("another peer has the present one", func(t *testing.T) {
		b := newKeyEnv(t)
		b.others = "present"
		b.check("announced", "next", "present", "next")
	})
	t.Run("none ever agrees", func(t *testing.T) {
		b := newKeyEnv(t)
		b.check("one", "one", "", "one")
		b.check("two", "two", "", "one", "two")
		b.check("of three, the last two", "three", "", "two", "three")
		b.at = b.at.Add(Forgotten)
		b.check("in the end, the announced key", "three", "", "three")
	})
}
