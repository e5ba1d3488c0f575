// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"hash/fnv"
	"net/netip"

	"liqo.io/liqo/internal/network/ipam"
)

// The overlay joins nodes and gateways of one cluster. Nothing is learned on it: who has which hardware address is arithmetic, so each host
// knows all the others' without asking.

const (
	// Overhead is what WireGuard adds over IPv6, the most of all: the devices carry so much less than the pods' own network. The VXLAN ends
	// where the tunnel begins, so its 50 bytes are covered.
	Overhead = 80
	// headers of TCP over IPv4, which MSS does not count.
	headers = 40
	// minMTU is what every host must take in; less is not a measurement.
	minMTU = 576
)

// nodeMAC is the hardware address of a node on the overlay.
func nodeMAC(address netip.Addr) MAC {
	mac := MAC{0x02, 0x4c}
	if address.Is4() {
		four := address.As4()
		copy(mac[2:], four[:])
		return mac
	}
	hash := fnv.New32a()
	_, _ = hash.Write(address.AsSlice()) // never fails
	copy(mac[2:], hash.Sum(nil))
	return mac
}

// gatewayMAC is the hardware address of the gateway of a lane on the overlay.
func gatewayMAC(lane int) MAC {
	return MAC{0x02, 0x4d, 0, 0, 0, byte(lane)}
}

// deviceMTU is the same on the overlay and on the tunnel, so that a packet that is too big is told so on its own node.
func (g ground) deviceMTU() int { return g.Self.PodMTU - Overhead }

// routeMTU is that of the routes to a peer: 0 unless less was measured than the devices carry.
func (g ground) routeMTU(peer Peer) int {
	if peer.MTU <= 0 || max(peer.MTU, minMTU) >= g.deviceMTU() {
		return 0
	}
	return max(peer.MTU, minMTU)
}

// mss is a constant: what nftables calls the MTU of the route back is found without the rule for the tunnel, and is wrong.
func (g ground) mss(peer Peer) uint16 {
	mtu := g.deviceMTU()
	if smaller := g.routeMTU(peer); smaller != 0 {
		mtu = smaller
	}
	return uint16(min(mtu-headers, 1<<16-1))
}

// overlay is the device of a host that sends from address.
func (g ground) overlay(mac MAC, address netip.Addr) Link {
	return Link{Name: VXLANLink, Kind: VXLAN, MTU: g.deviceMTU(), MAC: mac, Local: address, Port: g.Local.VXLANPort}
}

// toGateways are the neighbours of a node.
func (g ground) toGateways() (all []Neighbour) {
	for _, gateway := range g.Gateways {
		all = append(all, Neighbour{
			Link: VXLANLink, Address: ipam.ProbeAddress(g.Local.External, gateway.Lane), MAC: gatewayMAC(gateway.Lane), Destination: gateway.Address,
		})
	}
	return all
}

// toNodes are the neighbours of a gateway.
func (g ground) toNodes() (all []Neighbour) {
	for _, node := range g.Nodes {
		all = append(all, Neighbour{Link: VXLANLink, Address: g.addresses[node.Name], MAC: nodeMAC(node.Address), Destination: node.Address})
	}
	return all
}

// overlayPacket begins a rule on packets of the overlay itself.
func (g ground) overlayPacket(verb Verb) PacketRule {
	return PacketRule{Protocol: "udp", Port: g.Local.VXLANPort, Verb: verb}
}

// single is the network of one address.
func single(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }
