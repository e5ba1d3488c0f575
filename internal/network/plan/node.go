// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/hoststate"
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

// ForNode plans a node. It routes packets for peers to a gateway and keeps the pods' addresses as sources. Only gateways may use the
// overlay, and their packets reach pods, not the host.
//
// A state can come with an error: the error names what was refused, and the rest is planned. Only with ErrNoPlan is there no state, and
// the caller must leave the host as it is.
func ForNode(s Snapshot) (hoststate.State, error) {
	g, err := validate(s)
	if len(g.Peers) == 0 {
		return hoststate.State{}, err
	}
	i := slices.IndexFunc(g.Nodes, func(node Node) bool { return node.Name == g.Self.Node })
	if i < 0 {
		return hoststate.State{}, errors.Join(
			fmt.Errorf("%w: self.node: %q is not one of the %d nodes that can be planned", ErrNoPlan, g.Self.Node, len(g.Nodes)), err,
		)
	}
	self := g.Nodes[i]
	return hoststate.State{
		Links:      []hoststate.Link{g.overlay(nodeMAC(self.Address), self.Address)},
		Addresses:  []hoststate.Address{{Link: hoststate.VXLANLink, Prefix: single(g.addresses[self.Name])}},
		Neighbours: g.toGateways(),
		Routes:     g.nodeRoutes(g.addresses[self.Name]),
		Rules:      g.nodeRules(),
		Chains:     g.nodeChains(self),
	}, err
}

// nodeRules select our table for packets to peers and to our gateways.
func (g validSnapshot) nodeRules() []hoststate.Rule {
	rules := []hoststate.Rule{{Priority: hoststate.FirstRule, To: g.Local.External, Table: hoststate.Table}}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			rules = append(rules, hoststate.Rule{Priority: hoststate.FirstRule + 1, To: network, Table: hoststate.Table})
		}
	}
	return rules
}

func (g validSnapshot) nodeRoutes(source netip.Addr) []hoststate.Route {
	var routes []hoststate.Route
	for _, gateway := range g.Gateways {
		routes = append(routes, hoststate.Route{
			Table: hoststate.Table, To: single(ipam.ProbeAddress(g.Local.External, gateway.Lane)), Link: hoststate.VXLANLink, Source: source,
		})
	}
	for _, peer := range g.Peers {
		for _, network := range remote(peer) {
			// Without a gateway, packets are dropped, so that TCP retransmits them, and do not leave unencrypted by the default route.
			routes = append(routes, hoststate.Route{Table: hoststate.Table, To: network, Blackhole: true, Metric: lastMetric})
		}
		lane, ok := g.lane(peer)
		if !ok {
			continue
		}
		via := ipam.ProbeAddress(g.Local.External, lane)
		for _, network := range remote(peer) {
			routes = append(routes, hoststate.Route{Table: hoststate.Table, To: network, Via: via, Link: hoststate.VXLANLink, Source: source, MTU: g.routeMTU(peer)})
		}
		// Each lane is probed through its own gateway, whichever lane is in use.
		for _, gateway := range g.Gateways {
			if hasLane(peer, gateway.Lane) {
				routes = append(routes, hoststate.Route{
					Table: hoststate.Table, To: single(ipam.ProbeAddress(peer.RemoteExternal, gateway.Lane)),
					Via: ipam.ProbeAddress(g.Local.External, gateway.Lane), Link: hoststate.VXLANLink, Source: source, MTU: g.routeMTU(peer),
				})
			}
		}
	}
	sortRoutes(routes)
	return routes
}

// lane returns the lane to a peer: the chosen one if both its ends exist, else the first one whose ends both exist, else the first
// one with a gateway here. It returns false without gateways.
func (g validSnapshot) lane(peer Peer) (int, bool) {
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

func (g validSnapshot) nodeChains(self Node) []hoststate.Chain {
	gateways := make([]netip.Addr, 0, len(g.Gateways))
	for _, gateway := range g.Gateways {
		gateways = append(gateways, gateway.Address)
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	// The filter is in input: in prerouting it would also match packets from other nodes to a gateway pod on this node.
	unknown := g.overlayPacket(hoststate.Drop)
	unknown.FromNot = gateways

	var keep []hoststate.PacketRule
	for _, network := range g.Local.PodCIDRs {
		keep = append(keep, hoststate.PacketRule{Out: hoststate.VXLANLink, From: network, Verb: hoststate.KeepSource})
	}
	// kube-proxy may serve NodePorts at the node's first address only. It decides on the first packet, and connection tracking applies that to
	// the whole connection under the address that the client used. So only the first packet is rewritten to the node's first address.
	var ports []hoststate.PacketRule
	for _, protocol := range []string{"tcp", "udp"} {
		ports = append(ports, hoststate.PacketRule{
			In: hoststate.VXLANLink, To: single(g.addresses[self.Name]), Protocol: protocol, New: true, Verb: hoststate.SwapDestination, Network: single(self.Address),
		})
	}
	if g.Restricted { // before kube-proxy, which would forward it to any pod
		for i := range ports {
			ports[i].Verb, ports[i].Network = hoststate.Drop, netip.Prefix{}
		}
	}
	// If tracked, the overlay's packets would fill the conntrack table and be masqueraded, which hides their senders.
	untracked := []hoststate.PacketRule{g.overlayPacket(hoststate.NoTrack)}
	chains := []hoststate.Chain{
		{Name: "untracked_in", Hook: hoststate.Prerouting, Priority: priorityRaw, Rules: untracked},
		{Name: "node_ports", Hook: hoststate.Prerouting, Priority: priorityMangle, Rules: ports},
		{Name: "shown_in", NAT: true, Hook: hoststate.Prerouting, Priority: priorityShown, Rules: g.shownIn(self)},
		{Name: "input", Hook: hoststate.Input, Priority: priorityFilter, Rules: []hoststate.PacketRule{
			unknown,
			{In: hoststate.VXLANLink, Protocol: "icmp", Verb: hoststate.Accept},
			// Answers to this host are not new, and packets that kube-proxy directed here from a NodePort are translated.
			{In: hoststate.VXLANLink, New: true, Verb: hoststate.Drop},
		}},
		{Name: "untracked_out", Hook: hoststate.Output, Priority: priorityRaw, Rules: slices.Clone(untracked)},
		// The first chain that binds a flow wins: kube-proxy and network plugins masquerade at 100, or a little earlier.
		{Name: "keep_source", NAT: true, Hook: hoststate.Postrouting, Priority: priorityMangle, Rules: append(g.shownOut(self), keep...)},
	}
	return slices.DeleteFunc(chains, func(chain hoststate.Chain) bool { return len(chain.Rules) == 0 })
}
