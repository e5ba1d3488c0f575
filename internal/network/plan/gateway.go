// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/ipam"
)

// lastMetric is that of blackholes: whatever else there is goes first.
const lastMetric = 9999

// ForGateway plans a gateway pod: what nodes send over the overlay goes into the tunnel, what comes out of the tunnel goes to the node of
// its pod. It keeps no state about packets, but for those of mappings. Errors are as of ForNode.
func ForGateway(s Snapshot) (HostState, error) {
	g, err := survey(s)
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
		// Masquerading takes the address of the link. Answers to this one come back by this lane, whichever a node has chosen.
		state.Addresses = append(state.Addresses, Address{Link: TunnelLink, Prefix: probe})
	}
	sortRoutes(state.Routes)
	return state, err
}

// gatewayRules lead to the table with the ways inwards. Never by destination among the pods alone: the tunnel's own packets may go to an
// address of the node that lies there.
func (g ground) gatewayRules() []Rule {
	rules := []Rule{{Priority: FirstRule, InLink: TunnelLink, Table: Table}}
	for _, network := range g.Local.PodCIDRs {
		// The gateway's own errors (too big, TTL exceeded) must come to a pod the way its packets came, or its node thinks them invalid.
		rules = append(rules, Rule{Priority: FirstRule + 1, Protocol: "icmp", To: network, Table: Table})
	}
	// Answers to probes of nodes.
	return append(rules, Rule{Priority: FirstRule + 2, To: g.Local.External, Table: Table})
}

// inwards are the routes to pods and nodes. What has none is lost here, and does not leave by the uplink. The gateway's own addresses
// are found before in the kernel's local table.
func (g ground) inwards() []Route {
	var routes []Route
	known := map[netip.Prefix]bool{}
	add := func(to netip.Prefix, node Node) {
		if known[to] {
			return // an address goes from one pod to the next faster than we hear of it
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

// outwards are the routes to peers. Without the tunnel a packet is lost here: by the default route it would come back to the node that
// sent it, again and again. A lane that the peer does not have is no way.
func (g ground) outwards(source netip.Addr) (routes []Route) {
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

// sortRoutes orders them as they are looked up, our table first.
func sortRoutes(routes []Route) {
	slices.SortFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.Table, a.Table), a.To.Compare(b.To), cmp.Compare(a.Metric, b.Metric))
	})
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}

func (g ground) gatewayChains(probe netip.Prefix) []Chain {
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

// gatewayInput lets peers and nodes probe the gateway, and nothing else: what its pod serves is for its own cluster, over the uplink.
func (g ground) gatewayInput(probe netip.Prefix) []PacketRule {
	strangers := g.overlayPacket(Drop)
	strangers.FromNot = make([]netip.Addr, 0, len(g.Nodes))
	for _, node := range g.Nodes {
		strangers.FromNot = append(strangers.FromNot, node.Address)
	}
	slices.SortFunc(strangers.FromNot, netip.Addr.Compare)
	rules := []PacketRule{strangers}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			// They come by the tunnel. Let in here, a peer's pods would reach what the pod serves by way of another lane, and the tunnel's own
			// packets might follow one of them back into the tunnel.
			rules = append(rules, PacketRule{In: g.Self.Uplink, From: network, Verb: Drop})
		}
	}
	for _, link := range []string{TunnelLink, VXLANLink} {
		rules = append(rules,
			// The gateway's own probes are sent from this port, so this is where their echoes come, too.
			PacketRule{In: link, To: probe, Protocol: "udp", Port: ProbePort, Verb: Accept},
			PacketRule{In: link, Protocol: "icmp", Verb: Accept},
			PacketRule{In: link, Verb: Drop},
		)
	}
	// Who can write another's address on a packet could tell by the uplink what nodes see.
	return append(rules, PacketRule{To: probe, Verb: Drop})
}

// forward fits connections to the tunnel, and keeps the uplink for the gateway itself and for mappings, even while routes are missing.
func (g ground) forward() (rules []PacketRule) {
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
