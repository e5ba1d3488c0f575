// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/ipam"
)

// lastMetric is the metric of blackholes: any other route comes first.
const lastMetric = 9999

// ForGateway plans a gateway pod: packets from nodes on the overlay go into the tunnel, packets out of the tunnel go to the node of their
// pod. The gateway tracks no connections except those of mappings. Errors are as for ForNode.
func ForGateway(s Snapshot) (HostState, error) {
	g, err := validate(s)
	if len(g.Peers) == 0 {
		return HostState{}, err
	}
	if err := g.checkGateway(); err != nil {
		return HostState{}, err
	}
	probe := single(ipam.ProbeAddress(g.Local.External, g.Self.Lane))
	state := HostState{
		Links: []Link{
			g.overlay(gatewayMAC(g.Self.Lane), g.Self.Address),
			{Name: TunnelLink, Kind: WireGuardLink, MTU: g.deviceMTU()},
		},
		Addresses:  []Address{{Link: VXLANLink, Prefix: probe}},
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
		state.Addresses = append(state.Addresses, Address{Link: TunnelLink, Prefix: probe})
	}
	sortRoutes(state.Routes)
	return state, err
}

// gatewayRules select the table with the routes to pods and nodes. A rule must not select by a pod network alone, because the tunnel's own
// packets may go to an address of the node in that network.
func (g validSnapshot) gatewayRules() []Rule {
	rules := []Rule{{Priority: FirstRule, InLink: TunnelLink, Table: Table}}
	for _, network := range g.Local.PodCIDRs {
		// The gateway's own ICMP errors (too big, TTL exceeded) must reach a pod on the path of its packets, or its node treats them as invalid.
		rules = append(rules, Rule{Priority: FirstRule + 1, Protocol: "icmp", To: network, Table: Table})
	}
	// Answers to probes of nodes.
	return append(rules, Rule{Priority: FirstRule + 2, To: g.Local.External, Table: Table})
}

// inwards returns the routes to pods and nodes. Packets without such a route are dropped here and do not leave by the uplink. The gateway's own
// addresses are in the kernel's local table, which comes first.
func (g validSnapshot) inwards() []Route {
	var routes []Route
	known := map[netip.Prefix]bool{}
	add := func(to netip.Prefix, node Node) {
		if known[to] {
			return // an address can move to another pod before we observe it
		}
		known[to] = true
		routes = append(routes, Route{Table: Table, To: to, Via: g.addresses[node.Name], Link: VXLANLink})
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
		routes = append(routes, Route{Table: Table, To: network, Blackhole: true, Metric: lastMetric})
	}
	return routes
}

// outwards returns the routes to peers. Without the tunnel a packet is dropped here: the default route would return it to the node that sent
// it, in a loop. A lane that the peer does not have gets no route.
func (g validSnapshot) outwards(source netip.Addr) (routes []Route) {
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			if hasLane(peer, g.Self.Lane) {
				routes = append(routes, Route{Table: MainTable, To: network, Link: TunnelLink, Source: source, MTU: g.routeMTU(peer)})
			}
			routes = append(routes, Route{Table: MainTable, To: network, Blackhole: true, Metric: lastMetric})
		}
	}
	return routes
}

// sortRoutes orders routes as the kernel looks them up, our table first.
func sortRoutes(routes []Route) {
	slices.SortFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.Table, a.Table), a.To.Compare(b.To), cmp.Compare(a.Metric, b.Metric))
	})
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}

func (g validSnapshot) gatewayChains(probe netip.Prefix) []Chain {
	chains := []Chain{
		{Name: "errors_in", Hook: Prerouting, Priority: priorityRaw - 1, Rules: g.errorsIn()},
		{Name: "translate_in", Hook: Prerouting, Priority: priorityRaw, Rules: g.translateIn(probe)},
	}
	if g.maps() {
		chains = append(chains, Chain{Name: "map_in", NAT: true, Hook: Prerouting, Priority: priorityDestination, Rules: g.mapIn()})
	}
	chains = append(chains,
		Chain{Name: "input", Hook: Input, Priority: priorityFilter, Rules: g.gatewayInput(probe)},
		Chain{Name: "forward", Hook: Forward, Priority: priorityMangle, Rules: g.forward()},
	)
	if g.maps() {
		chains = append(chains,
			Chain{Name: "untracked_out", Hook: Output, Priority: priorityRaw, Rules: []PacketRule{g.overlayPacket(NoTrack)}},
			Chain{Name: "map_out", NAT: true, Hook: Postrouting, Priority: prioritySource, Rules: []PacketRule{{Mapped: true, Verb: Masquerade}}},
		)
	}
	chains = append(chains,
		Chain{Name: "errors_out", Hook: Postrouting, Priority: prioritySource + 9, Rules: g.errorsOut()},
		Chain{Name: "translate_out", Hook: Postrouting, Priority: prioritySource + 10, Rules: g.translateOut()},
	)
	return slices.DeleteFunc(chains, func(chain Chain) bool { return len(chain.Rules) == 0 })
}

// gatewayInput lets peers and nodes probe the gateway, and nothing else: the pod serves its own cluster only, over the uplink.
func (g validSnapshot) gatewayInput(probe netip.Prefix) []PacketRule {
	unknown := g.overlayPacket(Drop)
	unknown.FromNot = make([]netip.Addr, 0, len(g.Nodes))
	for _, node := range g.Nodes {
		unknown.FromNot = append(unknown.FromNot, node.Address)
	}
	slices.SortFunc(unknown.FromNot, netip.Addr.Compare)
	rules := []PacketRule{unknown}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			// Packets of peers arrive by the tunnel. Accepted here, a peer's pods could reach the pod's services through another lane, and the
			// tunnel's own packets could follow one of them back into the tunnel.
			rules = append(rules, PacketRule{In: g.Self.Uplink, From: network, Verb: Drop})
		}
	}
	for _, link := range []string{TunnelLink, VXLANLink} {
		rules = append(rules,
			// The gateway also sends its own probes from this port, so their echoes arrive here.
			PacketRule{In: link, To: probe, Protocol: "udp", Port: ProbePort, Verb: Accept},
			PacketRule{In: link, Protocol: "icmp", Verb: Accept},
			PacketRule{In: link, Verb: Drop},
		)
	}
	// A sender that forges a node's address could otherwise report in its name, over the uplink.
	return append(rules, PacketRule{To: probe, Verb: Drop})
}

// forward clamps the MSS of connections to the tunnel. It keeps the uplink for the gateway itself and for mappings, even while routes are
// missing.
func (g validSnapshot) forward() (rules []PacketRule) {
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			rules = append(rules,
				PacketRule{Out: TunnelLink, To: network, Protocol: "tcp", Verb: ClampMSS, MSS: g.mss(peer)},
				PacketRule{In: TunnelLink, From: network, Protocol: "tcp", Verb: ClampMSS, MSS: g.mss(peer)},
			)
		}
	}
	if g.maps() {
		rules = append(rules, PacketRule{In: TunnelLink, Out: g.Self.Uplink, Mapped: true, Verb: Accept})
	}
	if g.maps() {
		rules = append(rules, PacketRule{In: g.Self.Uplink, Mapped: true, Verb: Accept})
	}
	return append(rules,
		PacketRule{In: TunnelLink, Out: g.Self.Uplink, Verb: Drop},
		PacketRule{In: VXLANLink, Out: g.Self.Uplink, Verb: Drop},
		PacketRule{In: g.Self.Uplink, Verb: Drop},
	)
}
