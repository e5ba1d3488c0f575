// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/ipam"
)

// Priorities of our chains, relative to the kernel's own.
const (
	priorityRaw         = -300 // before connection tracking
	priorityMangle      = -150
	priorityDestination = -100
	priorityFilter      = 0
	prioritySource      = 100
)

// ForNode plans a node: packets to peers are led to a gateway with the pods' own addresses as sources; nobody but the gateways may
// use the overlay, and what comes out of it reaches pods, not the host.
//
// An error does not mean that there is no plan: what was refused is left out, named in the error, and the rest is planned. Only
// with ErrNoPlan is there nothing; then the host is to be left as it is.
func ForNode(s Snapshot) (HostState, error) {
	g, err := survey(s)
	if len(g.Peers) == 0 {
		return HostState{}, err
	}
	i := slices.IndexFunc(g.Nodes, func(node Node) bool { return node.Name == g.Self.Node })
	if i < 0 {
		return HostState{}, errors.Join(fmt.Errorf("%w: self.node: %q is not one of the %d nodes that can be planned", ErrNoPlan, g.Self.Node, len(g.Nodes)), err)
	}
	self := g.Nodes[i]
	return HostState{
		Links:      []Link{g.overlay(nodeMAC(self.Address), self.Address)},
		Addresses:  []Address{{Link: VXLANLink, Prefix: single(g.addresses[self.Name])}},
		Neighbours: g.toGateways(),
		Routes:     g.nodeRoutes(g.addresses[self.Name]),
		Rules:      g.nodeRules(),
		Chains:     g.nodeChains(),
	}, err
}

// nodeRules lead what goes to peers, and to our gateways, to our table.
func (g ground) nodeRules() []Rule {
	rules := []Rule{{Priority: FirstRule, To: g.Local.External, Table: Table}}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			rules = append(rules, Rule{Priority: FirstRule + 1, To: network, Table: Table})
		}
	}
	return rules
}

func (g ground) nodeRoutes(source netip.Addr) []Route {
	var routes []Route
	for _, gateway := range g.Gateways {
		routes = append(routes, Route{Table: Table, To: single(ipam.ProbeAddress(g.Local.External, gateway.Lane)), Link: VXLANLink, Source: source})
	}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			// While no gateway is there, packets wait for TCP to send them again, and do not leave unencrypted by the default route.
			routes = append(routes, Route{Table: Table, To: network, Blackhole: true, Metric: lastMetric})
		}
		lane, ok := g.lane(peer)
		if !ok {
			continue
		}
		via := ipam.ProbeAddress(g.Local.External, lane)
		for _, network := range remote(peer) {
			routes = append(routes, Route{Table: Table, To: network, Via: via, Link: VXLANLink, Source: source, MTU: g.routeMTU(peer)})
		}
		// Each lane is probed through itself, whichever is in use.
		for _, gateway := range g.Gateways {
			if hasLane(peer, gateway.Lane) {
				routes = append(routes, Route{
					Table: Table, To: single(ipam.ProbeAddress(peer.RemoteExternal, gateway.Lane)),
					Via: ipam.ProbeAddress(g.Local.External, gateway.Lane), Link: VXLANLink, Source: source, MTU: g.routeMTU(peer),
				})
			}
		}
	}
	sortRoutes(routes)
	return routes
}

// lane is the one that leads to a peer: the chosen one if both its ends exist, else the first of which that is true, else any
// whose end here exists. It is false without gateways.
func (g ground) lane(peer Peer) (int, bool) {
	lanes := make([]int, 0, len(g.Gateways))
	for _, gateway := range g.Gateways {
		if hasLane(peer, gateway.Lane) {
			lanes = append(lanes, gateway.Lane)
		}
	}
	if len(lanes) == 0 {
		for _, gateway := range g.Gateways {
			lanes = append(lanes, gateway.Lane)
		}
	}
	switch {
	case len(lanes) == 0:
		return 0, false
	case slices.Contains(lanes, peer.Lane):
		return peer.Lane, true
	default:
		return lanes[0], true
	}
}

func hasLane(peer Peer, number int) bool {
	return slices.ContainsFunc(peer.Lanes, func(lane PeerLane) bool { return lane.Number == number })
}

func (g ground) nodeChains() []Chain {
	gateways := make([]netip.Addr, 0, len(g.Gateways))
	for _, gateway := range g.Gateways {
		gateways = append(gateways, gateway.Address)
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	// The filter stands in input: in prerouting it would also see what other nodes send to a gateway on this one.
	strangers := g.overlayPacket(Drop)
	strangers.FromNot = gateways

	var keep []PacketRule
	for _, network := range g.Local.PodCIDRs {
		keep = append(keep, PacketRule{Out: VXLANLink, From: network, Verb: KeepSource})
	}
	// Tracked, the overlay's packets would fill the table and be masqueraded, which hides their senders.
	untracked := []PacketRule{g.overlayPacket(NoTrack)}
	return []Chain{
		{Name: "untracked_in", Hook: Prerouting, Priority: priorityRaw, Rules: untracked},
		{Name: "input", Hook: Input, Priority: priorityFilter, Rules: []PacketRule{
			strangers,
			{In: VXLANLink, Protocol: "icmp", Verb: Accept},
			// Answers to this host are not new, and what kube-proxy led here from a NodePort is translated.
			{In: VXLANLink, New: true, Verb: Drop},
		}},
		{Name: "untracked_out", Hook: Output, Priority: priorityRaw, Rules: slices.Clone(untracked)},
		// Who binds a flow first wins: kube-proxy and network plugins masquerade at 100, or a little earlier.
		{Name: "keep_source", NAT: true, Hook: Postrouting, Priority: priorityMangle, Rules: keep},
	}
}
