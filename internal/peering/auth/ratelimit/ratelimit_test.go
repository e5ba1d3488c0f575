// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"net/netip"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func admitted(l *Limiter, from string, now time.Time, tries int) (n int, wait time.Duration) {
	for range tries {
		if w := l.Admit(netip.MustParseAddr(from), now); w == 0 {
			n++
		} else {
			wait = w
		}
	}
	return n, wait
}

func TestLimiter(t *testing.T) {
	l := New(Pace{PerSecond: 2, Burst: 20}, Pace{PerSecond: 10, Burst: 50})
	if n, wait := admitted(l, "192.0.2.1", start, 30); n != 20 || wait != 500*time.Millisecond {
		t.Errorf("burst: %d, then wait %s", n, wait)
	}
	if n, _ := admitted(l, "::ffff:192.0.2.1", start, 1); n != 0 {
		t.Error("the same address, written otherwise")
	}
	if n, _ := admitted(l, "192.0.2.1", start.Add(2*time.Second), 30); n != 4 {
		t.Errorf("two seconds later: %d", n)
	}
	if n, _ := admitted(l, "2001:db8::1", start.Add(2*time.Second), 15); n != 15 {
		t.Errorf("another address: %d", n)
	}
	if n, _ := admitted(l, "2001:db8::ffff", start.Add(2*time.Second), 15); n != 5 {
		t.Errorf("its neighbour of the same /64: %d", n)
	}
	// 44 of the total are gone; 20 came back.
	now := start.Add(2 * time.Second)
	sum := 0
	for _, from := range []string{"192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"} {
		n, _ := admitted(l, from, now, 20)
		sum += n
	}
	if sum != 26 {
		t.Errorf("the total admitted %d", sum)
	}
}

func TestPunish(t *testing.T) {
	l := New(Pace{PerSecond: 1, Burst: 20}, Pace{PerSecond: 100, Burst: 1000})
	from := netip.MustParseAddr("192.0.2.1")
	l.Charge(from, start)
	if n, _ := admitted(l, "192.0.2.1", start, 30); n != 20-penalty {
		t.Errorf("after a penalty: %d", n)
	}
	for range 100 {
		l.Charge(from, start)
	}
	if wait := l.Admit(from, start); wait <= 0 || wait > 21*time.Second {
		t.Errorf("banned for %s", wait)
	}
	if n, _ := admitted(l, "192.0.2.2", start, 1); n != 1 {
		t.Error("another address is punished")
	}
	if n, _ := admitted(l, "192.0.2.1", start.Add(time.Minute), 30); n != 20 {
		t.Errorf("a minute later: %d", n)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := New(Pace{PerSecond: 1, Burst: 1}, Pace{PerSecond: 1, Burst: 1e6})
	first := netip.MustParseAddr("10.0.0.0")
	address := first
	for range maxNetworks + 1 {
		l.Admit(address, start)
		address = address.Next()
	}
	if l.Admit(address, start) != 0 || l.Admit(address, start) == 0 || l.Admit(first, start) != 0 {
		t.Errorf("more than %d networks are remembered, or not the most recent ones", maxNetworks)
	}
	l.Admit(netip.Addr{}, start) // a connection whose address cannot be read
	if l.Admit(netip.Addr{}, start) == 0 {
		t.Error("a client without an address has no limit")
	}
}
