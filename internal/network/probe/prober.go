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

	"liqo.io/liqo/internal/network/hoststate"
)

const (
	// reportEvery is how often a node repeats its observations to the gateways.
	reportEvery = time.Second
	// reopenAfter is the silence after which another source port is tried. Connection tracking on the path may have bound the old port
	// to an address that is no longer right, and does not forget it as long as we send.
	reopenAfter = 5 * time.Second
	// stalled is how late this process may wake up before the delay is forgiven.
	stalled = 20 * time.Millisecond
	// idleWait is the time between steps while nothing is due.
	idleWait = time.Minute
	// pathSequence is a flag in the sequence numbers of packets that search the path's MTU.
	pathSequence = 1 << 63
)

// Target is the gateway of a lane at a peer.
type Target struct {
	ClusterID string
	Lane      int
	Address   netip.Addr
}

// Aim is the intent of a prober. It changes as peers come and go.
type Aim struct {
	Targets []Target
	Pace    Pace
	// Local is the address to send from and to answer at. The host need not have it yet. If it is invalid, the kernel chooses a source, and
	// the prober answers nothing.
	Local netip.Addr
	// MTU is the largest packet that the local device takes; 0: path MTUs are not measured.
	MTU int
	// Nodes are the names of the nodes whose observations are accepted, by address.
	Nodes map[netip.Addr]string
	// Node is the name under which this node reports Observations to Gateways.
	Node         string
	Gateways     []netip.Addr
	Observations []Observation
}

// Result is what is known of one target.
type Result struct {
	Status
	// MTU is the largest packet that came back; 0 if unknown.
	MTU int
}

// NodeReport is a packet of observations from a node of this cluster.
type NodeReport struct {
	Node             string
	Observations     []Observation
	sender, sequence uint64
}

type Options struct {
	// Port of all gateways; 0: hoststate.ProbePort.
	Port uint16
	// Changed is called when a result changed in a way that affects decisions: its state or its MTU.
	Changed func()
	// Received is called for each packet of observations.
	Received func(NodeReport)
}

// Prober sends, receives and answers probes.
type Prober struct {
	options Options
	sender  uint64
	kick    chan struct{}

	mu             sync.Mutex
	aim            Aim
	monitors       map[Target]*measured
	byAddr         map[netip.Addr]*measured
	conn           *net.UDPConn
	local          netip.Addr
	opened         time.Time
	problem        error
	echo           limiter
	reported       time.Time
	reportSequence uint64
	wake           time.Time
	buffer         []byte
}

// measured is a target with its monitor and its path.
type measured struct {
	Target
	*monitor
	path path
}

func New(o Options) *Prober {
	if o.Port == 0 {
		o.Port = hoststate.ProbePort
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Prober{options: o, sender: rand.Uint64(), kick: make(chan struct{}, 1), monitors: map[Target]*measured{}, byAddr: map[netip.Addr]*measured{}}
}

// Aim replaces the intent. Targets that stay keep their results.
func (p *Prober) Aim(aim Aim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	monitors, byAddr := make(map[Target]*measured, len(aim.Targets)), make(map[netip.Addr]*measured, len(aim.Targets))
	for _, target := range aim.Targets {
		one := p.monitors[target]
		if one == nil {
			one = &measured{Target: target, monitor: newMonitor(now, aim.Pace)}
		}
		one.pace = aim.Pace
		monitors[target], byAddr[target.Address] = one, one
	}
	if !sameReport(p.aim, aim) {
		p.reported = time.Time{}
	}
	p.aim, p.monitors, p.byAddr = aim, monitors, byAddr
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// AimAt sets the intent and returns the prober, for use with New.
func (p *Prober) AimAt(aim Aim) *Prober {
	p.Aim(aim)
	return p
}

func (p *Prober) Results() map[Target]Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := make(map[Target]Result, len(p.monitors))
	for target, one := range p.monitors {
		all[target] = Result{Status: one.status(now), MTU: one.path.mtu}
	}
	return all
}

// Problem returns why nothing can be probed; nil if it can.
func (p *Prober) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

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

// step does what is due and returns when something is due next.
func (p *Prober) step(now time.Time) (next time.Time, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := now.Sub(p.wake); !p.wake.IsZero() && late > stalled {
		for _, one := range p.monitors {
			one.forgive(now, late)
		}
	}
	next = now.Add(idleWait)
	soonest := func(at time.Time) {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	soonest(p.ready(now))
	for _, one := range p.monitors {
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
	soonest(p.report(now))
	if !next.After(now) {
		next = now.Add(time.Millisecond) // never a busy loop
	}
	p.wake = next
	return next, changed
}

// measure searches the path's MTU, and reports whether it changed.
func (p *Prober) measure(now time.Time, one *measured) bool {
	before := one.path.mtu
	for {
		size := one.path.step(now, one.state == Up, p.aim.MTU, one.status(now).RoundTrip, one.echoed)
		if size == 0 {
			return one.path.mtu != before
		}
		err := p.send(header{kind: echoRequest, lane: byte(one.Lane), sequence: pathSequence | uint64(size)}, one.Address, size-headers)
		if !errors.Is(err, syscall.EMSGSIZE) {
			p.echoFrom(now, one)
			return one.path.mtu != before
		}
		one.path.refused(now)
	}
}

// echoFrom asks one target for an echo, by a small packet.
func (p *Prober) echoFrom(now time.Time, one *measured) {
	_ = p.send(header{kind: echoRequest, lane: byte(one.Lane), sequence: one.send(now)}, one.Address, headerSize) // see write
}

// report sends observations to the gateways, and returns when to do so again.
func (p *Prober) report(now time.Time) time.Time {
	if p.aim.Node == "" || len(p.aim.Gateways) == 0 || len(p.aim.Observations) == 0 {
		return time.Time{}
	}
	if now.Sub(p.reported) >= reportEvery {
		p.reported = now
		for _, body := range writeReport(p.aim.Node, p.aim.Observations) {
			p.reportSequence++
			for _, gateway := range p.aim.Gateways {
				packet := header{kind: observations, sender: p.sender, sequence: p.reportSequence}.write(p.buffer, headerSize+len(body))
				copy(packet[headerSize:], body)
				p.write(packet, gateway)
			}
		}
	}
	return p.reported.Add(reportEvery)
}

func (p *Prober) send(h header, to netip.Addr, size int) error {
	h.sender = p.sender
	p.buffer = h.write(p.buffer, size)
	return p.write(p.buffer, to)
}

// write may fail as a path may: then nothing comes back, which is the measurement.
func (p *Prober) write(packet []byte, to netip.Addr) error {
	if p.conn == nil {
		return nil
	}
	_, err := p.conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(to, p.options.Port))
	return err
}

func sameReport(a, b Aim) bool {
	if a.Node != b.Node || len(a.Observations) != len(b.Observations) || len(a.Gateways) != len(b.Gateways) {
		return false
	}
	for i, gateway := range a.Gateways {
		if gateway != b.Gateways[i] {
			return false
		}
	}
	for i, observation := range a.Observations {
		other := b.Observations[i]
		if observation.ClusterID != other.ClusterID || observation.Lane != other.Lane || len(observation.Up) != len(other.Up) {
			return false
		}
		for j := range observation.Up {
			if observation.Up[j] != other.Up[j] {
				return false
			}
		}
	}
	return true
}
