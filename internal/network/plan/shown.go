// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// A peer shows our pods under a prefix of its own, in the status of the pods that run here for it. Programs here that read its API dial that. On the
// node of the pod that dials, such a connection is led to the pod itself, before policies of the network plugin see it: as a connection to a Service
// is. No gateway is involved, and connections to all other addresses pass one rule more when they start (docs/adr/0044-addresses-of-the-consumer.md).

// priorityShown is just before kube-proxy and network plugins.
const priorityShown = priorityDestination - 1

// shown returns our networks as peers show them. A peer chose the prefix, so it counts only if the controllers found that nothing here leads to it,
// and nothing that is planned here does. Several peers may show the same one; they all mean the same pods.
func (g validSnapshot) shown() (all []Swap) {
	for _, peer := range g.Peers {
		swap := Swap{From: peer.Pods.To, To: peer.Pods.From}
		if !peer.Shown || peer.MappingsOnly || g.overlapping(swap.From) != "" || slices.Contains(all, swap) {
			continue
		}
		all = append(all, swap)
	}
	slices.SortFunc(all, func(a, b Swap) int { return a.From.Compare(b.From) })
	return all
}

// shownIn leads connections of our pods to an address that a peer shows to the pod that has it. It marks those whose both ends are on this node.
func (g validSnapshot) shownIn(self Node) (rules []hoststate.PacketRule) {
	for _, swap := range g.shown() {
		for _, network := range self.PodCIDRs {
			if first, ok := ipam.Swap(network.Addr(), swap.To, swap.From); ok && network.Bits() >= swap.To.Bits() {
				rules = append(rules, hoststate.PacketRule{From: network, To: netip.PrefixFrom(first, network.Bits()), Verb: hoststate.MarkShown})
			}
		}
		for _, from := range g.Local.PodCIDRs {
			rules = append(rules, hoststate.PacketRule{From: from, To: swap.From, Verb: hoststate.MapDestinationNetwork, Network: swap.To})
		}
	}
	return rules
}

// shownOut lets the client of a marked connection come from an address that a peer shows for it. Both ends may be the same pod, which takes no
// packets from its own address; and two pods on one bridge would exchange answers past this node's translation. If peers show several, it is the
// first.
func (g validSnapshot) shownOut(self Node) (rules []hoststate.PacketRule) {
	all := g.shown()
	for _, swap := range all[:min(1, len(all))] {
		for _, network := range self.PodCIDRs {
			if swap.To.Contains(network.Addr()) && network.Bits() >= swap.To.Bits() {
				rules = append(rules, hoststate.PacketRule{From: network, To: network, Mapped: true, Shown: true, Verb: hoststate.MapSourceNetwork, Network: swap.From})
			}
		}
	}
	return rules
}
