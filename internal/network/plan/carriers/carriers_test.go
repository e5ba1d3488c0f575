// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"net/netip"
	"testing"
	"time"
)

// TestShift: a tunnel over a stream tries the UDP addresses in turn, not too often, and notices where WireGuard has moved.
func TestShift(t *testing.T) {
	var d shift
	stream := netip.MustParseAddrPort("127.64.0.1:2000")
	var tried []string
	for at := time.Duration(0); at < time.Minute; at += s {
		if moved, try := d.step(start.Add(at), []netip.AddrPort{a, b}, stream); moved.IsValid() {
			t.Fatalf("moved to %s", moved)
		} else if try.IsValid() {
			tried = append(tried, at.String()+" "+try.String())
		}
	}
	if len(tried) != 2 || tried[0] != "20s "+a.String() || tried[1] != "40s "+b.String() {
		t.Errorf("tried %v", tried)
	}
	if moved, _ := d.step(start.Add(time.Minute), []netip.AddrPort{a, b}, b); moved != b {
		t.Errorf("moved to %v, want %s", moved, b)
	}
	if moved, try := d.step(start.Add(time.Hour), nil, stream); moved.IsValid() || try.IsValid() {
		t.Errorf("without UDP: %v, %v", moved, try)
	}
}

// TestStep: what is decided about a stream, row by row, for a peer with UDP addresses.
func TestStep(t *testing.T) {
	stream := netip.MustParseAddrPort("127.64.0.1:5875")
	up := func(at time.Duration) Seen { return Seen{Reply: start.Add(at), Timeout: s} }
	p := New(func(time.Duration) time.Duration { return 0 })
	for _, row := range []struct {
		what string
		at   time.Duration
		f    Facts
		want Decision // without Again
	}{
		{"nothing is announced", 0, Facts{Wrong: "no address"}, Decision{Drop: true, Problem: "no address"}},
		{"UDP comes first", 0, Facts{UDP: []netip.AddrPort{a}, Stream: stream}, Decision{Target: a, Dial: 1, Abandon: true, Open: true}},
		{"then the stream", 3 * s, Facts{UDP: []netip.AddrPort{a}, Stream: stream, Failed: "refused"}, Decision{
			Target: stream, Dial: 2, Abandon: true, Open: true, Problem: "neither UDP nor a stream reaches the peer's gateway: refused",
		}},
		{"it works", 4 * s, Facts{Seen: up(4 * s), UDP: []netip.AddrPort{a}, Stream: stream, At: stream}, Decision{Target: stream, Dial: 2}},
		{"UDP is tried", 4*s + TryEvery, Facts{Seen: up(4*s + TryEvery), UDP: []netip.AddrPort{a}, Stream: stream, At: stream}, Decision{
			Target: stream, Dial: 2, Try: a, Until: start.Add(4*s + TryEvery + tryFor),
		}},
		{"packets come from there", 25 * s, Facts{Seen: up(25 * s), UDP: []netip.AddrPort{a}, Stream: stream, At: stream, Passed: a}, Decision{Target: a, Dial: 2}},
		{"the stream is spare", 30 * s, Facts{Seen: up(30 * s), UDP: []netip.AddrPort{a}, Stream: stream, At: a}, Decision{Target: a, Dial: 2}},
		{"and dropped", 25*s + spareFor, Facts{Seen: up(25*s + spareFor), UDP: []netip.AddrPort{a}, Stream: stream, At: a}, Decision{Target: a, Dial: 2, Drop: true}},
		{"the peer moves it to the stream", 40 * s, Facts{Seen: up(40 * s), UDP: []netip.AddrPort{a}, Stream: stream, At: stream}, Decision{Target: stream, Dial: 2}},
		{"into a tunnel", 41 * s, Facts{Seen: up(41 * s), UDP: []netip.AddrPort{a}, Stream: stream, At: stream, Inside: true}, Decision{Target: stream, Dial: 3}},
		{"the peer announces no stream any more", 42 * s, Facts{Seen: up(42 * s), UDP: []netip.AddrPort{a}, At: a}, Decision{Target: stream, Dial: 3, Drop: true}},
	} {
		got := p.Step(start.Add(row.at), &row.f)
		if got.Again = (time.Time{}); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.what, got, row.want)
		}
	}
}

// TestReplaces: both ends decide alike.
func TestReplaces(t *testing.T) {
	low, high := []byte{1}, []byte{2}
	at := func(dialled bool, after time.Duration) Stream {
		return Stream{Dialled: dialled, Since: start.Add(after)}
	}
	for name, test := range map[string]struct {
		own, peer []byte
		old, now  Stream
		want      bool
	}{
		"the smaller end has dialled, then accepts": {low, high, at(true, 0), at(false, time.Second), false},
		"the larger end accepts, then has dialled":  {high, low, at(false, 0), at(true, time.Second), false},
		"the larger end has dialled, then accepts":  {high, low, at(true, 0), at(false, time.Second), true},
		"the smaller end accepts, then has dialled": {low, high, at(false, 0), at(true, time.Second), true},
		"the peer dials again":                      {low, high, at(false, 0), at(false, time.Second), true},
		"later":                                     {low, high, at(true, 0), at(false, 5*s), true},
	} {
		if got := Replaces(test.own, test.peer, test.old, test.now, 5*s); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
