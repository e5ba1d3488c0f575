// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// TryEvery is how often a tunnel over a stream tries UDP, and tryFor how long copies of its packets go there.
	TryEvery, tryFor = 20 * time.Second, time.Second
	// spareFor is how long a stream stays after the tunnel has moved to UDP.
	spareFor = 10 * time.Second
)

// Facts are what is known of the tunnel with one peer.
type Facts struct {
	Seen
	// UDP are the addresses of the peer's gateway, and Wrong is why there is none.
	UDP   []netip.AddrPort
	Wrong string
	// Stream stands for the stream with the peer in the configuration of WireGuard; invalid if there is none and the peer announces none.
	Stream netip.AddrPort
	// Failed is why no stream could be opened; empty if none was tried.
	Failed string
	// At is where WireGuard sends now. Inside: that address is itself reached through a tunnel.
	At     netip.AddrPort
	Inside bool
	// Passed is the address of the last trial of UDP if packets have come from there; invalid otherwise. A device of the kernel does not notice that itself.
	Passed netip.AddrPort
}

// Decision is what to do about one peer.
type Decision struct {
	// Target is where WireGuard sends; invalid: the peer dials. The peer is dialled again whenever Dial changes.
	Target netip.AddrPort
	Dial   int
	// Open a stream in the background, unless there is one. Drop the one that this end has opened, and the attempts to open one.
	Open, Drop bool
	// Try is where copies of what the stream carries go until a time; invalid: nowhere. Abandon what the last trial has shown.
	Try     netip.AddrPort
	Until   time.Time
	Abandon bool
	// Problem is why the peer cannot be dialled; empty if it can.
	Problem string
	// Again is when to decide again; zero if only a new input makes a difference.
	Again time.Time
}

// Peer is what is remembered of one peer. Make it with New.
type Peer struct {
	dialer dialer
	shift  shift
}

// New returns a peer of which nothing is known. The jitter keeps the two ends from retrying in lockstep: it returns a time up to the given one.
func New(jitter func(time.Duration) time.Duration) *Peer {
	return &Peer{dialer: dialer{jitter: jitter}}
}

// Step decides on what is known.
func (p *Peer) Step(now time.Time, f *Facts) (d Decision) {
	targets := f.UDP
	if f.Stream.IsValid() {
		targets = slices.Insert(slices.Clone(f.UDP), min(1, len(f.UDP)), f.Stream) // after one UDP address, since each takes its time
	}
	if len(targets) == 0 {
		d.Problem = f.Wrong
	}
	d.Again = p.dialer.step(now, targets, f.Seen)
	if f.Stream.IsValid() {
		d.Again = Earlier(d.Again, p.carry(now, f, &d))
	} else {
		d.Drop = true // the peer announces none any more
	}
	if f.Inside {
		p.dialer.dial++ // the holder of the key has routed the tunnel into a tunnel: recreate the peer without that address
	}
	d.Target, d.Dial = p.dialer.target, p.dialer.dial
	return d
}

// carry opens the stream of a peer when UDP fails, tries UDP while the stream is in use, and ends it afterwards. It returns when to decide again.
func (p *Peer) carry(now time.Time, f *Facts, d *Decision) time.Time {
	if !f.Silent(now) && f.At == f.Stream {
		p.dialer.target = f.At // the peer has moved the tunnel to the stream; without another attempt: the session goes on
	}
	on := p.dialer.target == f.Stream
	switch {
	case f.Silent(now):
		p.shift.moved = time.Time{}
		d.Abandon = true // otherwise the stream that still stands would lead back to UDP at once
		if f.Failed != "" && on {
			d.Problem = "neither UDP nor a stream reaches the peer's gateway: " + f.Failed
		}
		d.Open = on || p.dialer.attempts > 0 || len(f.UDP) == 0 // ready when the dialer comes to it
		return time.Time{}
	case on:
		at := f.At
		if f.Passed.IsValid() {
			at = f.Passed // of a device of the kernel, which has not moved itself
		}
		moved, try := p.shift.step(now, f.UDP, at)
		if moved.IsValid() {
			p.dialer.target = moved // without another attempt: the session goes on
			return now.Add(spareFor)
		}
		if try.IsValid() {
			d.Try, d.Until = try, now.Add(tryFor)
		}
		return now.Add(min(TryEvery, time.Second))
	case now.Sub(p.shift.moved) >= spareFor:
		d.Drop, p.shift = true, shift{}
		return time.Time{}
	}
	return p.shift.moved.Add(spareFor)
}

// shift decides whether a tunnel over a stream tries UDP, and notices when it has moved there.
type shift struct {
	// tried is when UDP was tried last, next which address comes next; moved is when the tunnel moved to UDP, zero if it has not.
	tried, moved time.Time
	next         int
}

// step returns the address that the tunnel has moved to, or the one to try now; both are invalid if nothing is to be done. at is where WireGuard
// sends now, or a UDP address from which it has received.
func (d *shift) step(now time.Time, udp []netip.AddrPort, at netip.AddrPort) (moved, try netip.AddrPort) {
	switch {
	case len(udp) == 0:
		return netip.AddrPort{}, netip.AddrPort{}
	case slices.Contains(udp, at):
		d.moved = now
		return at, netip.AddrPort{}
	case d.tried.IsZero():
		d.tried = now // it was just found not to work
	case now.Sub(d.tried) >= TryEvery || now.Before(d.tried):
		d.tried = now
		d.next++
		return netip.AddrPort{}, udp[(d.next-1)%len(udp)]
	}
	return netip.AddrPort{}, netip.AddrPort{}
}

// Earlier returns the earlier of two times; zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
