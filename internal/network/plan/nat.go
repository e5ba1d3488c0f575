// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// A cluster translates only its own addresses, without state: the source when a packet leaves, the destination when it enters. An ICMP error
// carries the packet that it reports, in which our address is on the other side. Separate chains translate that address, because it does not
// depend on the outer one.

// Most packets that a chain sees are none of its business: each packet passes the chains of the link that it comes in by and of the one that it goes
// out by. So the first rule of each lets the others pass at once, and their number does not grow with the peers.

// notIn and notOut are these rules.
var notIn, notOut = hoststate.PacketRule{InNot: hoststate.TunnelLink, Verb: hoststate.Accept}, hoststate.PacketRule{
	OutNot: hoststate.TunnelLink, Verb: hoststate.Accept,
}

// behind puts rules behind one of these; without rules, no packet needs it.
func behind(pass hoststate.PacketRule, rules []hoststate.PacketRule) []hoststate.PacketRule {
	if len(rules) == 0 {
		return nil
	}
	return slices.Insert(rules, 0, pass)
}

// remote returns the prefixes under which we reach a peer.
func remote(peer Peer) []netip.Prefix { return []netip.Prefix{peer.RemotePods, peer.RemoteExternal} }

// own returns our networks and the prefixes under which a peer reaches them.
func own(peer Peer) []Swap { return []Swap{peer.Pods, peer.External} }

// errorsIn translates errors that enter: the inner packet was ours, so its source is the address under which the peer reaches us.
func (g validSnapshot) errorsIn() (rules []hoststate.PacketRule) {
	for _, peer := range g.Peers {
		for _, from := range remote(peer) {
			for _, swap := range own(peer) {
				if swap.From != swap.To {
					rules = append(rules, hoststate.PacketRule{
						In: hoststate.TunnelLink, From: from, Protocol: "icmp", Inner: swap.To, Verb: hoststate.SwapInnerSource, Network: swap.From,
					})
				}
			}
		}
	}
	return behind(notIn, rules)
}

// errorsOut translates errors that leave: the inner packet was the peer's, and its destination is ours.
func (g validSnapshot) errorsOut() (rules []hoststate.PacketRule) {
	for _, peer := range g.Peers {
		for _, to := range remote(peer) {
			for _, swap := range own(peer) {
				if swap.From != swap.To {
					rules = append(rules, hoststate.PacketRule{
						Out: hoststate.TunnelLink, To: to, Protocol: "icmp", Inner: swap.From, Verb: hoststate.SwapInnerDestination, Network: swap.To,
					})
				}
			}
		}
	}
	return behind(notOut, rules)
}

// translateIn accepts packets to the prefixes under which the sender's cluster reaches us, and nothing else. WireGuard guarantees that the source
// belongs to the sender: a peer's packets come from its networks only.
func (g validSnapshot) translateIn(probe netip.Prefix) (rules []hoststate.PacketRule) {
	if g.maps() {
		rules = g.tracked(probe)
	} else {
		rules = append(rules, notIn)
	}
	for _, peer := range g.Peers {
		if peer.MappingsOnly {
			continue // the rules of tracked packets accept those to its mappings
		}
		for _, from := range remote(peer) {
			for _, swap := range own(peer) {
				if g.Restricted && swap == peer.Pods {
					rules = append(rules, hoststate.PacketRule{In: hoststate.TunnelLink, From: from, To: swap.To, ToNot: seen(peer), Verb: hoststate.Drop})
				}
				rules = append(rules, enter(from, swap))
			}
		}
	}
	return append(rules, hoststate.PacketRule{In: hoststate.TunnelLink, Verb: hoststate.Drop})
}

// translateOut lets our own packets out, from the prefix under which the receiving cluster reaches us. We do not carry packets from one peer to
// another.
func (g validSnapshot) translateOut() (rules []hoststate.PacketRule) {
	for _, peer := range g.Peers {
		for _, to := range remote(peer) {
			for _, swap := range own(peer) {
				if peer.MappingsOnly && swap == peer.Pods {
					continue
				}
				if g.Restricted && swap == peer.Pods {
					rules = append(rules, hoststate.PacketRule{Out: hoststate.TunnelLink, From: swap.From, To: to, FromNot: g.senders(peer), Verb: hoststate.Drop})
				}
				rule := hoststate.PacketRule{Out: hoststate.TunnelLink, From: swap.From, To: to, Verb: hoststate.Accept}
				if swap.From != swap.To {
					rule.Verb, rule.Network = hoststate.SwapSource, swap.To
				}
				rules = append(rules, rule)
			}
		}
	}
	return behind(notOut, append(rules, hoststate.PacketRule{Out: hoststate.TunnelLink, Verb: hoststate.Drop}))
}

// seen returns the addresses under which a peer reaches the pods that belong to the peering; never nil.
func seen(peer Peer) []netip.Addr {
	all := make([]netip.Addr, 0, len(peer.Reachable))
	for _, pod := range peer.Reachable {
		if address, ok := ipam.Swap(pod, peer.Pods.From, peer.Pods.To); ok {
			all = append(all, address)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// senders returns the addresses in our pod network that may send to a peer: its pods, and the gateway, whose ICMP errors report packets that are too big.
func (g validSnapshot) senders(peer Peer) []netip.Addr {
	all := append(slices.Clone(peer.Reachable), g.Self.Address)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

func enter(from netip.Prefix, swap Swap) hoststate.PacketRule {
	rule := hoststate.PacketRule{In: hoststate.TunnelLink, From: from, To: swap.To, Verb: hoststate.Accept}
	if swap.From != swap.To {
		rule.Verb, rule.Network = hoststate.SwapDestination, swap.From
	}
	return rule
}

// Mappings need connection tracking. Their rules are planned only if a mapping exists, because the kernel tracks every packet as soon as one
// rule asks for the state of connections.

// maps reports whether some peer may use some mapping.
func (g validSnapshot) maps() bool {
	return slices.ContainsFunc(g.Peers, func(peer Peer) bool { return len(g.mappings(peer)) > 0 })
}

// mappings returns those that a peer may use. The guest of an invitation is no peer yet: only those that name it are for it.
func (g validSnapshot) mappings(peer Peer) (all []Mapping) {
	for _, mapping := range g.Mappings {
		if len(mapping.ClusterIDs) == 0 && !peer.MappingsOnly || slices.Contains(mapping.ClusterIDs, peer.ClusterID) {
			all = append(all, mapping)
		}
	}
	return all
}

// tracked exempts packets from connection tracking that are not for a mapping. The target of a mapping may be anywhere: its answers come to an
// address of this gateway, over any link. Packets over the uplink are always tracked.
func (g validSnapshot) tracked(probe netip.Prefix) []hoststate.PacketRule {
	rules := []hoststate.PacketRule{
		g.overlayPacket(hoststate.NoTrack),
		{In: hoststate.VXLANLink, To: probe, Verb: hoststate.Accept},
		{In: hoststate.VXLANLink, Verb: hoststate.NoTrack},
		notIn, // what follows is for packets out of the tunnel
	}
	for _, peer := range g.Peers {
		addresses := []netip.Addr{probe.Addr()}
		for _, mapping := range g.mappings(peer) {
			addresses = append(addresses, mapping.External)
		}
		for _, from := range remote(peer) {
			for _, address := range addresses {
				seen, _ := ipam.Swap(address, peer.External.From, peer.External.To) // lies within, because validate checked it
				rules = append(rules, enter(from, Swap{From: single(address), To: single(seen)}))
			}
		}
	}
	return append(rules, hoststate.PacketRule{In: hoststate.TunnelLink, Verb: hoststate.NoTrack})
}

// mapIn translates the address of a mapping to its target, for the peers that may use it, at the ports that they may use. For other peers, and at
// other ports, the address belongs to no host, and the packet is lost.
func (g validSnapshot) mapIn() (rules []hoststate.PacketRule) {
	for _, peer := range g.Peers {
		for _, from := range remote(peer) {
			for _, mapping := range g.mappings(peer) {
				rule := hoststate.PacketRule{In: hoststate.TunnelLink, From: from, To: single(mapping.External), Verb: hoststate.MapDestination, Address: mapping.Target}
				if len(mapping.Ports) == 0 {
					rules = append(rules, rule)
				}
				for _, port := range mapping.Ports {
					rule.Protocol, rule.Port = port.Protocol, port.Port
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules
}
