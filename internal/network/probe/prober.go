// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"liqo.io/liqo/internal/network/plan"
)

const (
	// tellEvery is how often sights are told again.
	tellEvery = time.Second
	// reopenAfter: if nothing came back for so long, another source port is tried. Connection tracking on the way may have bound the
	// old one to an address that was right once, and as long as we send it does not forget.
	reopenAfter = 5 * time.Second
	// stalled is how late we may wake up before that time is excused.
	stalled = 20 * time.Millisecond
	// asleep is how long nothing to do lasts.
	asleep = time.Minute
	// ofPath marks the sequence numbers of packets that search the path's MTU.
	ofPath = 1 << 63
)

// Target is one leg: the gateway of a lane at a peer.
type Target struct {
	ClusterID string
	Lane      int
	Address   netip.Addr
}

// Aim is what a prober is to do. It changes as peers come and go.
type Aim struct {
	Targets []Target
	Pace    Pace
	// Local is the address to send from and to answer at, though it may not be there yet. Invalid: the kernel chooses, and nothing is answered.
	Local netip.Addr
	// MTU is the largest packet that the own device takes; 0: paths are not measured.
	MTU int
	// Nodes are those from which sights are heard, by address.
	Nodes map[netip.Addr]string
	// Node tells Sights to Gateways.
	Node     string
	Gateways []netip.Addr
	Sights   []Sight
}

// Result is what is known of one leg.
type Result struct {
	Stand
	// MTU is the largest packet that came back; 0 if it is not known.
	MTU int
}

// Heard is a packet with sights from a node of this cluster.
type Heard struct {
	Node             string
	Sights           []Sight
	sender, sequence uint64
}

// Options of a prober.
type Options struct {
	// Port of all gateways; 0 stands for the usual one.
	Port uint16
	// Changed is called when a result changed in what others decide by: a state, or an MTU.
	Changed func()
	// Heard is called for packets with sights.
	Heard func(Heard)
}

// Prober sends, hears and answers probes.
type Prober struct {
	options Options
	sender  uint64
	kick    chan struct{}

	mu      sync.Mutex
	aim     Aim
	legs    map[Target]*measured
	byAddr  map[netip.Addr]*measured
	conn    *net.UDPConn
	local   netip.Addr
	opened  time.Time
	problem error
	echo    limiter
	told    time.Time
	telling uint64
	wake    time.Time
	buffer  []byte
}

// measured is a leg with its path.
type measured struct {
	Target
	*leg
	path path
}

// New makes a prober without an aim.
func New(o Options) *Prober {
	if o.Port == 0 {
		o.Port = plan.ProbePort
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Prober{options: o, sender: rand.Uint64(), kick: make(chan struct{}, 1), legs: map[Target]*measured{}, byAddr: map[netip.Addr]*measured{}}
}

// Aim replaces what is to be done. Legs that stay keep what is known of them.
func (p *Prober) Aim(aim Aim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	legs, byAddr := make(map[Target]*measured, len(aim.Targets)), make(map[netip.Addr]*measured, len(aim.Targets))
	for _, target := range aim.Targets {
		one := p.legs[target]
		if one == nil {
			one = &measured{Target: target, leg: newLeg(now, aim.Pace)}
		}
		one.pace = aim.Pace
		legs[target], byAddr[target.Address] = one, one
	}
	if !sameSights(p.aim, aim) {
		p.told = time.Time{}
	}
	p.aim, p.legs, p.byAddr = aim, legs, byAddr
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// AimAt is Aim, in one breath with New.
func (p *Prober) AimAt(aim Aim) *Prober {
	p.Aim(aim)
	return p
}

// Results of all legs.
func (p *Prober) Results() map[Target]Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := make(map[Target]Result, len(p.legs))
	for target, one := range p.legs {
		all[target] = Result{Stand: one.stand(now), MTU: one.path.mtu}
	}
	return all
}

// Problem is why nothing can be probed; nil if it can.
func (p *Prober) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// Run works until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closeSocket()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.kick:
		}
		now := time.Now()
		next, changed := p.step(now)
		if changed {
			p.options.Changed()
		}
		timer.Reset(max(0, time.Until(next)))
	}
}

// step does what is due and says when something is due again.
func (p *Prober) step(now time.Time) (next time.Time, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := now.Sub(p.wake); !p.wake.IsZero() && late > stalled {
		for _, one := range p.legs {
			one.excuse(now, late)
		}
	}
	next = now.Add(asleep)
	soonest := func(at time.Time) {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	soonest(p.ready(now))
	for _, one := range p.legs {
		changed = one.judge(now) || changed
		if !one.due(now).After(now) {
			p.echoFrom(now, one)
		}
		soonest(one.due(now))
		soonest(one.deadline())
		if p.aim.MTU > 0 {
			changed = p.measure(now, one) || changed
			soonest(one.path.next())
		}
	}
	soonest(p.tell(now))
	if !next.After(now) {
		next = now.Add(time.Millisecond) // whatever happens, no busy loop
	}
	p.wake = next
	return next, changed
}

// measure searches the path's MTU.
func (p *Prober) measure(now time.Time, one *measured) bool {
	before := one.path.mtu
	for {
		size := one.path.step(now, one.state == Up, p.aim.MTU, one.stand(now).RoundTrip, one.echoed)
		if size == 0 {
			return one.path.mtu != before
		}
		err := p.send(header{kind: echoRequest, lane: byte(one.Lane), sequence: ofPath | uint64(size)}, one.Address, size-headers)
		if !errors.Is(err, syscall.EMSGSIZE) {
			p.echoFrom(now, one)
			return one.path.mtu != before
		}
		one.path.refused(now)
	}
}

// echoFrom asks one leg for an echo, by a small packet.
func (p *Prober) echoFrom(now time.Time, one *measured) {
	_ = p.send(header{kind: echoRequest, lane: byte(one.Lane), sequence: one.send(now)}, one.Address, headerSize) // see write
}

// tell sends sights to the gateways, and says when it is to be done again.
func (p *Prober) tell(now time.Time) time.Time {
	if p.aim.Node == "" || len(p.aim.Gateways) == 0 || len(p.aim.Sights) == 0 {
		return time.Time{}
	}
	if now.Sub(p.told) >= tellEvery {
		p.told = now
		for _, body := range writeSights(p.aim.Node, p.aim.Sights) {
			p.telling++
			for _, gateway := range p.aim.Gateways {
				packet := header{kind: sights, sender: p.sender, sequence: p.telling}.write(p.buffer, headerSize+len(body))
				copy(packet[headerSize:], body)
				p.write(packet, gateway)
			}
		}
	}
	return p.told.Add(tellEvery)
}

func (p *Prober) send(h header, to netip.Addr, size int) error {
	h.sender = p.sender
	p.buffer = h.write(p.buffer, size)
	return p.write(p.buffer, to)
}

// write may fail as a path may: then nothing comes back, which is what we want to know.
func (p *Prober) write(packet []byte, to netip.Addr) error {
	if p.conn == nil {
		return nil
	}
	_, err := p.conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(to, p.options.Port))
	return err
}

func sameSights(a, b Aim) bool {
	if a.Node != b.Node || len(a.Sights) != len(b.Sights) || len(a.Gateways) != len(b.Gateways) {
		return false
	}
	for i, gateway := range a.Gateways {
		if gateway != b.Gateways[i] {
			return false
		}
	}
	for i, sight := range a.Sights {
		other := b.Sights[i]
		if sight.ClusterID != other.ClusterID || sight.Lane != other.Lane || len(sight.Up) != len(other.Up) {
			return false
		}
		for j := range sight.Up {
			if sight.Up[j] != other.Up[j] {
				return false
			}
		}
	}
	return true
}
