// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// lastMetric is the metric of blackholes: any other route comes first.
const lastMetric = 9999

// ForGateway plans a gateway pod: packets from nodes on the overlay go into the tunnel, packets out of the tunnel go to the node of their
// pod. The gateway tracks no connections except those of mappings. Errors are as for ForNode.
func ForGateway(s Snapshot) (hoststate.State, error) {
	g, err := validate(s)
	if len(g.Peers) == 0 {
		return hoststate.State{}, err
	}
	if err := g.checkGateway(); err != nil {
		return hoststate.State{}, err
	}
	probe := single(ipam.ProbeAddress(g.Local.External, g.Self.Lane))
	state := hoststate.State{
		Links: []hoststate.Link{
			g.overlay(gatewayMAC(g.Self.Lane), g.Self.Address),
			{Name: hoststate.TunnelLink, Kind: hoststate.WireGuardLink, MTU: g.deviceMTU()},
		},
		Addresses:  []hoststate.Address{{Link: hoststate.VXLANLink, Prefix: probe}},
		Neighbours: g.toNodes(),
		Routes:     append(g.inwards(), g.outwards(probe.Addr())...),
		Rules:      g.gatewayRules(),
		Chains:     g.gatewayChains(probe),
		WireGuard:  g.wireGuard(),
	}
	if g.PodsUnknown {
		state.Keep = slices.Clone(g.Local.PodCIDRs)
	}
	if g.maps() {
		// Masquerading uses the address of the link. Answers to this address come back through this lane, whichever lane a node has chosen.
		state.Addresses = append(state.Addresses, hoststate.Address{Link: hoststate.TunnelLink, Prefix: probe})
	}
	sortRoutes(state.Routes)
	return state, err
}

// gatewayRules select the table with the routes to pods and nodes. A rule must not select by a pod network alone, because the tunnel's own
// packets may go to an address of the node in that network.
func (g validSnapshot) gatewayRules() []hoststate.Rule {
	rules := []hoststate.Rule{{Priority: hoststate.FirstRule, InLink: hoststate.TunnelLink, Table: hoststate.Table}}
	for _, network := range g.Local.PodCIDRs {
		// The gateway's own ICMP errors (too big, TTL exceeded) must reach a pod on the path of its packets, or its node treats them as invalid.
		rules = append(rules, hoststate.Rule{Priority: hoststate.FirstRule + 1, Protocol: "icmp", To: network, Table: hoststate.Table})
	}
	// Answers to probes of nodes.
	return append(rules, hoststate.Rule{Priority: hoststate.FirstRule + 2, To: g.Local.External, Table: hoststate.Table})
}

// inwards returns the routes to pods and nodes. Packets without such a route are dropped here and do not leave by the uplink. The gateway's own
// addresses are in the kernel's local table, which comes first.
func (g validSnapshot) inwards() []hoststate.Route {
	var routes []hoststate.Route
	known := map[netip.Prefix]bool{}
	add := func(to netip.Prefix, node Node) {
		if known[to] {
			return // an address can move to another pod before we observe it
		}
		known[to] = true
		routes = append(routes, hoststate.Route{Table: hoststate.Table, To: to, Via: g.addresses[node.Name], Link: hoststate.VXLANLink})
	}
	for _, node := range g.Nodes {
		add(single(g.addresses[node.Name]), node)
		for _, network := range node.PodCIDRs {
			add(network, node)
		}
	}
	for _, node := range g.Nodes {
		for _, pod := range node.Pods {
			if contains(g.Local.PodCIDRs, pod) && !contains(node.PodCIDRs, pod) {
				add(single(pod), node)
			}
		}
	}
	for _, network := range append(slices.Clone(g.Local.PodCIDRs), g.Local.External) {
		routes = append(routes, hoststate.Route{Table: hoststate.Table, To: network, Blackhole: true, Metric: lastMetric})
	}
	return routes
}

// outwards returns the routes to peers. Without the tunnel a packet is dropped here: the default route would return it to the node that sent
// it, in a loop. A lane that the peer does not have gets no route.
func (g validSnapshot) outwards(source netip.Addr) (routes []hoststate.Route) {
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			if hasLane(peer, g.Self.Lane) {
				routes = append(routes, hoststate.Route{Table: hoststate.MainTable, To: network, Link: hoststate.TunnelLink, Source: source, MTU: g.routeMTU(peer)})
			}
			routes = append(routes, hoststate.Route{Table: hoststate.MainTable, To: network, Blackhole: true, Metric: lastMetric})
		}
	}
	return routes
}

// sortRoutes orders routes as the kernel looks them up, our table first.
func sortRoutes(routes []hoststate.Route) {
	slices.SortFunc(routes, func(a, b hoststate.Route) int {
		return cmp.Or(cmp.Compare(b.Table, a.Table), a.To.Compare(b.To), cmp.Compare(a.Metric, b.Metric))
	})
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}

func (g validSnapshot) gatewayChains(probe netip.Prefix) []hoststate.Chain {
	chains := []hoststate.Chain{
		{Name: "errors_in", Hook: hoststate.Prerouting, Priority: priorityRaw - 1, Rules: g.errorsIn()},
		{Name: "translate_in", Hook: hoststate.Prerouting, Priority: priorityRaw, Rules: g.translateIn(probe)},
	}
	if g.maps() {
		chains = append(chains, hoststate.Chain{Name: "map_in", NAT: true, Hook: hoststate.Prerouting, Priority: priorityDestination, Rules: g.mapIn()})
	}
	chains = append(chains,
		hoststate.Chain{Name: "input", Hook: hoststate.Input, Priority: priorityFilter, Rules: g.gatewayInput(probe)},
		hoststate.Chain{Name: "forward", Hook: hoststate.Forward, Priority: priorityMangle, Rules: g.forward()},
	)
	if g.maps() {
		chains = append(chains,
			hoststate.Chain{Name: "untracked_out", Hook: hoststate.Output, Priority: priorityRaw, Rules: []hoststate.PacketRule{g.overlayPacket(hoststate.NoTrack)}},
			hoststate.Chain{
				Name: "map_out", NAT: true, Hook: hoststate.Postrouting, Priority: prioritySource,
				Rules: []hoststate.PacketRule{{Mapped: true, Verb: hoststate.Masquerade}},
			},
		)
	}
	chains = append(chains,
		hoststate.Chain{Name: "errors_out", Hook: hoststate.Postrouting, Priority: prioritySource + 9, Rules: g.errorsOut()},
		hoststate.Chain{Name: "translate_out", Hook: hoststate.Postrouting, Priority: prioritySource + 10, Rules: g.translateOut()},
	)
	return slices.DeleteFunc(chains, func(chain hoststate.Chain) bool { return len(chain.Rules) == 0 })
}

// gatewayInput lets peers and nodes probe the gateway, and nothing else: the pod serves its own cluster only, over the uplink.
func (g validSnapshot) gatewayInput(probe netip.Prefix) []hoststate.PacketRule {
	unknown := g.overlayPacket(hoststate.Drop)
	unknown.FromNot = make([]netip.Addr, 0, len(g.Nodes))
	for _, node := range g.Nodes {
		unknown.FromNot = append(unknown.FromNot, node.Address)
	}
	slices.SortFunc(unknown.FromNot, netip.Addr.Compare)
	rules := []hoststate.PacketRule{unknown}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			// Packets of peers arrive by the tunnel. Accepted here, a peer's pods could reach the pod's services through another lane, and the
			// tunnel's own packets could follow one of them back into the tunnel.
			rules = append(rules, hoststate.PacketRule{In: g.Self.Uplink, From: network, Verb: hoststate.Drop})
		}
	}
	for _, link := range []string{hoststate.TunnelLink, hoststate.VXLANLink} {
		rules = append(rules,
			// The gateway also sends its own probes from this port, so their echoes arrive here.
			hoststate.PacketRule{In: link, To: probe, Protocol: "udp", Port: hoststate.ProbePort, Verb: hoststate.Accept},
			hoststate.PacketRule{In: link, Protocol: "icmp", Verb: hoststate.Accept},
			hoststate.PacketRule{In: link, Verb: hoststate.Drop},
		)
	}
	// A sender that forges a node's address could otherwise report in its name, over the uplink.
	return append(rules, hoststate.PacketRule{To: probe, Verb: hoststate.Drop})
}

// forward clamps the MSS of connections to the tunnel. It keeps the uplink for the gateway itself and for mappings, even while routes are
// missing.
func (g validSnapshot) forward() (rules []hoststate.PacketRule) {
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			rules = append(rules,
				hoststate.PacketRule{Out: hoststate.TunnelLink, To: network, Protocol: "tcp", Verb: hoststate.ClampMSS, MSS: g.mss(peer)},
				hoststate.PacketRule{In: hoststate.TunnelLink, From: network, Protocol: "tcp", Verb: hoststate.ClampMSS, MSS: g.mss(peer)},
			)
		}
	}
	if g.maps() {
		rules = append(rules, hoststate.PacketRule{In: hoststate.TunnelLink, Out: g.Self.Uplink, Mapped: true, Verb: hoststate.Accept})
	}
	if g.maps() {
		rules = append(rules, hoststate.PacketRule{In: g.Self.Uplink, Mapped: true, Verb: hoststate.Accept})
	}
	return append(rules,
		hoststate.PacketRule{In: hoststate.TunnelLink, Out: g.Self.Uplink, Verb: hoststate.Drop},
		hoststate.PacketRule{In: hoststate.VXLANLink, Out: g.Self.Uplink, Verb: hoststate.Drop},
		hoststate.PacketRule{In: g.Self.Uplink, Verb: hoststate.Drop},
	)
}
