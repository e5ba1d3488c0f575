// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// Places are the connections of one port. It is safe for concurrent use.
type Places struct {
	limits Limits

	mu sync.Mutex
	// guests have proven nothing, oldest first.
	guests []*Place
	// from is how many guests each network has, and kept how many places each client has that has proven who it is.
	from map[netip.Prefix]int
	kept map[string]int
	// busy is the sum of kept, and held that of what guests hold.
	busy, held int
}

type Place struct {
	in   *Places
	from netip.Prefix
	end  func()

	// What follows is guarded by the mutex of Places.
	state     state
	who       string
	preferred bool
	held      int
}

type state int

const (
	guest state = iota
	kept
	left
)

// NewPlaces returns places for the connections of one port.
func NewPlaces(l Limits) *Places {
	return &Places{limits: l.complete(), from: map[netip.Prefix]int{}, kept: map[string]int{}}
}

// Enter gives a connection a place until Leave, and may end another one.
func (p *Places) Enter(connection net.Conn) *Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	address, _ := netip.ParseAddrPort(connection.RemoteAddr().String()) // those that cannot be parsed count as one network
	mine := &Place{in: p, from: ratelimit.NetworkOf(address.Addr()), end: func() { abort(connection) }}
	p.guests = append(p.guests, mine)
	if p.from[mine.from]++; len(p.guests) > p.limits.All || p.from[mine.from] > p.limits.Each {
		p.evict(ratelimit.Excess(p.guests, network, p.limits.All, p.limits.Each))
	}
	return mine
}

func network(one *Place) netip.Prefix { return one.from }

// abort ends a connection without waiting for its client, whatever is still to be sent.
func abort(connection net.Conn) {
	if tcp, is := connection.(*net.TCPConn); is {
		_ = tcp.SetLinger(0) // fails only if it has ended already
	}
	_ = connection.Close() // its goroutine notices
}

// evict ends a guest or, in its place, the oldest of the same network that is not preferred and not the newcomer.
func (p *Places) evict(out int) {
	if out < 0 {
		return
	}
	one := p.guests[out]
	if first := slices.IndexFunc(p.guests[:len(p.guests)-1], func(other *Place) bool {
		return other.from == one.from &&
			!other.preferred
	}); one.preferred && first >= 0 {
		one = p.guests[first]
	}
	p.remove(one)
	one.state = left
	one.end()
}

func (p *Places) remove(one *Place) {
	p.guests = slices.DeleteFunc(p.guests, func(other *Place) bool { return other == one })
	if p.from[one.from]--; p.from[one.from] == 0 {
		delete(p.from, one.from)
	}
	p.held -= one.held
	one.held = 0
}

// Leave frees the place. Further calls do nothing.
func (one *Place) Leave() {
	p := one.in
	p.mu.Lock()
	defer p.mu.Unlock()
	switch one.state {
	case guest:
		p.remove(one)
	case kept:
		p.busy--
		if p.kept[one.who]--; p.kept[one.who] == 0 {
			delete(p.kept, one.who)
		}
	case left:
	}
	one.state = left
}

// Keep gives the connection a place of those who have proven who they are, if there is one. It reports whether it has one.
func (one *Place) Keep(who string) bool {
	p := one.in
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.state == guest && p.busy < p.limits.Kept && p.kept[who] < p.limits.KeptEach {
		p.remove(one)
		one.state, one.who = kept, who
		p.busy++
		p.kept[who]++
	}
	return one.state == kept
}

// Prefer lets the others of its network end before this one: what its client has started counts against another limit.
func (one *Place) Prefer() {
	one.in.mu.Lock()
	defer one.in.mu.Unlock()
	one.preferred = true
}

// hold counts bytes that have to wait for others, and may end the guest that holds the most. It reports false if that is this one.
func (one *Place) hold(bytes int) bool {
	p := one.in
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.state != guest {
		return one.state == kept
	}
	one.held += bytes
	if p.held += bytes; p.held > p.limits.Held {
		p.evict(ratelimit.Heaviest(p.guests, network, func(one *Place) int { return one.held }))
	}
	return one.state == guest
}

// release forgets what the place holds.
func (one *Place) release() {
	one.in.mu.Lock()
	defer one.in.mu.Unlock()
	if one.state == guest {
		one.in.held -= one.held
		one.held = 0
	}
}

// Guests returns how many have proven nothing.
func (p *Places) Guests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.guests)
}
