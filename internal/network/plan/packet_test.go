// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// packet holds the fields that the kernel's rules match. The inner addresses are those of the packet that an ICMP error reports.
type packet struct {
	in, out            string
	from, to           netip.Addr
	protocol           string
	port               uint16
	innerFrom, innerTo netip.Addr
	mss                uint16

	untracked bool
	shown     bool
	flow      *flow
	answer    bool
}

// flow is what connection tracking remembers of a connection that it translated.
type flow struct {
	from, to netip.Addr // as it began
	target   netip.Addr
	source   netip.Addr // after masquerading
}

// machine executes a plan as the kernel would: chains by hook and priority, rules, routes by longest prefix and metric. It is small enough to be
// checked by reading; the applier's tests use a real kernel.
type machine struct {
	state  hoststate.State
	uplink netip.Addr // the address of eth0, over which the default route leads
	flows  []*flow
}

const (
	dropped = "dropped"
	lost    = "lost in a blackhole"
	local   = "taken in"
	sent    = "sent"
)

// receive handles a packet that came in by a link.
func (m *machine) receive(p packet) (packet, string) {
	if !m.hook(hoststate.Prerouting, &p) {
		return p, dropped
	}
	return m.route(p)
}

func (m *machine) route(p packet) (packet, string) {
	if m.isLocal(p.to) {
		if !m.hook(hoststate.Input, &p) {
			return p, dropped
		}
		return p, local
	}
	if p.out = m.lookup(p); p.out == "" {
		return p, lost
	}
	if !m.hook(hoststate.Forward, &p) || !m.hook(hoststate.Postrouting, &p) {
		return p, dropped
	}
	return p, sent
}

// send handles a packet that the machine itself sends.
func (m *machine) send(p packet) (packet, string) {
	if !m.hook(hoststate.Output, &p) {
		return p, dropped
	}
	if p.out = m.lookup(p); p.out == "" {
		return p, lost
	}
	if !m.hook(hoststate.Postrouting, &p) {
		return p, dropped
	}
	return p, sent
}

func (m *machine) isLocal(address netip.Addr) bool {
	return address == m.uplink || slices.ContainsFunc(m.state.Addresses, func(a hoststate.Address) bool { return a.Prefix.Contains(address) })
}

// lookup returns the link that a packet leaves by.
func (m *machine) lookup(p packet) string {
	rules := slices.Clone(m.state.Rules)
	slices.SortStableFunc(rules, func(a, b hoststate.Rule) int { return cmp.Compare(a.Priority, b.Priority) })
	rules = append(rules, hoststate.Rule{Priority: 32766, Table: hoststate.MainTable})
	for _, rule := range rules {
		if rule.InLink != "" && rule.InLink != p.in || rule.To.IsValid() && !rule.To.Contains(p.to) || rule.Protocol != "" && rule.Protocol != p.protocol {
			continue
		}
		if route, ok := m.best(rule.Table, p.to); ok {
			return route.Link
		}
	}
	return "eth0"
}

func (m *machine) best(table int, to netip.Addr) (best hoststate.Route, ok bool) {
	for _, route := range m.state.Routes {
		if route.Table != table || !route.To.Contains(to) {
			continue
		}
		if !ok || route.To.Bits() > best.To.Bits() || route.To.Bits() == best.To.Bits() && route.Metric < best.Metric {
			best, ok = route, true
		}
	}
	return best, ok
}

// hook passes a packet through the chains of a hook; it is false if the packet was dropped.
func (m *machine) hook(hook hoststate.Hook, p *packet) bool {
	chains := slices.Clone(m.state.Chains)
	chains = slices.DeleteFunc(chains, func(c hoststate.Chain) bool { return c.Hook != hook })
	slices.SortStableFunc(chains, func(a, b hoststate.Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	tracking := hook != hoststate.Prerouting && hook != hoststate.Output
	translated := hook != hoststate.Prerouting && hook != hoststate.Postrouting
	for _, chain := range chains {
		if !tracking && chain.Priority > -200 {
			m.track(p)
			tracking = true
		}
		if !translated && chain.Priority > natPriority(hook) {
			translate(hook, p)
			translated = true
		}
		if chain.NAT && (p.untracked || p.flow != nil && (p.answer || hook == hoststate.Prerouting && p.flow.target.IsValid())) {
			continue // only the first packet of a connection comes here
		}
		if !m.chain(chain, p) {
			return false
		}
	}
	if !tracking {
		m.track(p)
	}
	if !translated {
		translate(hook, p)
	}
	return true
}

func natPriority(hook hoststate.Hook) int {
	if hook == hoststate.Prerouting {
		return -100
	}
	return 100
}

func (m *machine) track(p *packet) {
	if p.untracked {
		return
	}
	for _, flow := range m.flows {
		if p.from == flow.from && p.to == flow.to {
			p.flow = flow
			return
		}
		if p.from == flow.target && p.to == flow.source {
			p.flow, p.answer = flow, true
			return
		}
	}
}

func translate(hook hoststate.Hook, p *packet) {
	if p.flow == nil {
		return
	}
	switch {
	case hook == hoststate.Prerouting && !p.answer:
		p.to = p.flow.target
	case hook == hoststate.Prerouting:
		p.to = p.flow.from
	case p.answer:
		p.from = p.flow.to
	default:
		p.from = p.flow.source
	}
}

func (m *machine) chain(chain hoststate.Chain, p *packet) bool {
	for _, rule := range chain.Rules {
		if !matches(rule, *p) {
			continue
		}
		switch rule.Verb {
		case hoststate.Drop:
			return false
		case hoststate.NoTrack:
			p.untracked = true
			continue
		case hoststate.ClampMSS:
			if p.mss > rule.MSS {
				p.mss = rule.MSS
			}
			continue
		case hoststate.SwapSource:
			p.from = write(p.from, rule.Network)
		case hoststate.SwapDestination:
			p.to = write(p.to, rule.Network)
		case hoststate.SwapInnerSource:
			p.innerFrom = write(p.innerFrom, rule.Network)
		case hoststate.SwapInnerDestination:
			p.innerTo = write(p.innerTo, rule.Network)
		case hoststate.MapDestination:
			p.flow = &flow{from: p.from, to: p.to, target: rule.Address, source: p.from}
			m.flows = append(m.flows, p.flow)
		case hoststate.MarkShown:
			p.shown = true
			continue
		case hoststate.MapDestinationNetwork:
			p.flow = &flow{from: p.from, to: p.to, target: write(p.to, rule.Network), source: p.from}
			m.flows = append(m.flows, p.flow)
		case hoststate.MapSourceNetwork:
			p.flow.source = write(p.from, rule.Network)
		case hoststate.Masquerade:
			p.flow.source = m.uplink
			for _, address := range m.state.Addresses {
				if address.Link == p.out {
					p.flow.source = address.Prefix.Addr()
				}
			}
		case hoststate.Accept, hoststate.KeepSource:
		}
		return true
	}
	return true
}

func matches(r hoststate.PacketRule, p packet) bool {
	inner := p.innerFrom
	if r.Verb == hoststate.SwapInnerDestination {
		inner = p.innerTo
	}
	switch {
	case r.In != "" && r.In != p.in, r.Out != "" && r.Out != p.out:
		return false
	case r.InNot != "" && r.InNot == p.in, r.OutNot != "" && r.OutNot == p.out:
		return false
	case r.From.IsValid() && !r.From.Contains(p.from), r.To.IsValid() && !r.To.Contains(p.to):
		return false
	case r.FromNot != nil && slices.Contains(r.FromNot, p.from):
		return false
	case r.ToNot != nil && slices.Contains(r.ToNot, p.to):
		return false
	case r.Inner.IsValid() && !r.Inner.Contains(inner):
		return false
	case r.Protocol != "" && r.Protocol != p.protocol, r.Port != 0 && r.Port != p.port:
		return false
	case r.New && (p.flow != nil || p.untracked), r.Mapped && p.flow == nil, r.Shown && !p.shown:
		return false
	}
	return true
}

func write(address netip.Addr, network netip.Prefix) netip.Addr {
	swapped, _ := ipam.Swap(address, netip.PrefixFrom(address, network.Bits()), network)
	return swapped
}

// tunnel carries a packet from one gateway to that with the key, if both ends' allowed addresses let it pass.
func tunnel(p packet, sender, receiver *machine) (packet, bool) {
	if p.out != hoststate.TunnelLink || !allowed(sender, receiver.state.WireGuard.PublicKey, p.to) ||
		!allowed(receiver, sender.state.WireGuard.PublicKey, p.from) {
		return p, false
	}
	return again(p, hoststate.TunnelLink), true
}

func allowed(m *machine, key string, address netip.Addr) bool {
	for _, peer := range m.state.WireGuard.Peers {
		for _, network := range peer.AllowedIPs {
			if network.Contains(address) {
				return peer.PublicKey == key
			}
		}
	}
	return false
}

// again returns the packet as the next machine receives it.
func again(p packet, in string) packet {
	return packet{in: in, from: p.from, to: p.to, protocol: p.protocol, port: p.port, innerFrom: p.innerFrom, innerTo: p.innerTo, mss: p.mss}
}
