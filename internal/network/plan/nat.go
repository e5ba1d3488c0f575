// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/ipam"
)

// We translate only ourselves: our source when a packet leaves, our destination when it enters, without any memory. An ICMP error carries
// the packet that it is about, in which we are on the other side; that is translated in chains of its own, as one address does not
// depend on the other.

// remote are the networks under which we see a peer.
func remote(peer Peer) []netip.Prefix { return []netip.Prefix{peer.RemotePods, peer.RemoteExternal} }

// own are our networks as a peer sees them.
func own(peer Peer) []Swap { return []Swap{peer.Pods, peer.External} }

// errorsIn: the packet inside was ours, so its source is our name in the peer.
func (g ground) errorsIn() (rules []PacketRule) {
	for _, peer := range g.Peers {
		for _, from := range remote(peer) {
			for _, swap := range own(peer) {
				if swap.From != swap.To {
					rules = append(rules, PacketRule{In: TunnelLink, From: from, Protocol: "icmp", Inner: swap.To, Verb: SwapInnerSource, Network: swap.From})
				}
			}
		}
	}
	return rules
}

// errorsOut: the packet inside was the peer's, and went to us.
func (g ground) errorsOut() (rules []PacketRule) {
	for _, peer := range g.Peers {
		for _, to := range remote(peer) {
			for _, swap := range own(peer) {
				if swap.From != swap.To {
					rules = append(rules, PacketRule{Out: TunnelLink, To: to, Protocol: "icmp", Inner: swap.From, Verb: SwapInnerDestination, Network: swap.To})
				}
			}
		}
	}
	return rules
}

// translateIn lets in what goes to us by a name that the sender's cluster has for us, and nothing else. That From is the sender is WireGuard's
// word: a peer's packets come from its networks only.
func (g ground) translateIn(probe netip.Prefix) (rules []PacketRule) {
	if g.maps() {
		rules = g.tracked(probe)
	}
	for _, peer := range g.Peers {
		for _, from := range remote(peer) {
			for _, swap := range own(peer) {
				rules = append(rules, enter(from, swap))
			}
		}
	}
	return append(rules, PacketRule{In: TunnelLink, Verb: Drop})
}

// translateOut lets out what comes from us, under the name that the receiving cluster has for us. A packet from one peer to another is not ours
// to carry.
func (g ground) translateOut() (rules []PacketRule) {
	for _, peer := range g.Peers {
		for _, to := range remote(peer) {
			for _, swap := range own(peer) {
				rule := PacketRule{Out: TunnelLink, From: swap.From, To: to, Verb: Accept}
				if swap.From != swap.To {
					rule.Verb, rule.Network = SwapSource, swap.To
				}
				rules = append(rules, rule)
			}
		}
	}
	return append(rules, PacketRule{Out: TunnelLink, Verb: Drop})
}

func enter(from netip.Prefix, swap Swap) PacketRule {
	rule := PacketRule{In: TunnelLink, From: from, To: swap.To, Verb: Accept}
	if swap.From != swap.To {
		rule.Verb, rule.Network = SwapDestination, swap.From
	}
	return rule
}

// Mappings need to remember who asked. All of that is planned only if there are any: the kernel tracks every packet as soon as one rule wants to know.

// maps tells whether any mapping may be used by any peer.
func (g ground) maps() bool {
	return slices.ContainsFunc(g.Peers, func(peer Peer) bool { return len(g.mappings(peer)) > 0 })
}

// mappings are those that a peer may use.
func (g ground) mappings(peer Peer) (all []Mapping) {
	for _, mapping := range g.Mappings {
		if len(mapping.ClusterIDs) == 0 || slices.Contains(mapping.ClusterIDs, peer.ClusterID) {
			all = append(all, mapping)
		}
	}
	return all
}

// tracked spares connection tracking what is not for a mapping. What a mapping leads to may be anywhere: the answers come to an address of this
// gateway, over any link. Those over the uplink are always tracked.
func (g ground) tracked(probe netip.Prefix) []PacketRule {
	rules := []PacketRule{
		g.overlayPacket(NoTrack),
		{In: VXLANLink, To: probe, Verb: Accept},
		{In: VXLANLink, Verb: NoTrack},
	}
	for _, peer := range g.Peers {
		addresses := []netip.Addr{probe.Addr()}
		for _, mapping := range g.mappings(peer) {
			addresses = append(addresses, mapping.External)
		}
		for _, from := range remote(peer) {
			for _, address := range addresses {
				seen, _ := ipam.Swap(address, peer.External.From, peer.External.To) // lies within: survey has seen to it
				rules = append(rules, enter(from, Swap{From: single(address), To: single(seen)}))
			}
		}
	}
	return append(rules, PacketRule{In: TunnelLink, Verb: NoTrack})
}

// mapIn leads those who may to what a mapping stands for. To others its address is one of ours that nobody has, and the packet is lost.
func (g ground) mapIn() (rules []PacketRule) {
	for _, peer := range g.Peers {
		for _, from := range remote(peer) {
			for _, mapping := range g.mappings(peer) {
				rules = append(rules, PacketRule{In: TunnelLink, From: from, To: single(mapping.External), Verb: MapDestination, Address: mapping.Target})
			}
		}
	}
	return rules
}
