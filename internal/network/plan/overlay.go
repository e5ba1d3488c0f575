// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"hash/fnv"
	"net/netip"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// The overlay joins the nodes and gateways of one cluster. It learns nothing from packets: hardware addresses are computed, so each host
// knows those of all others. Packets between a gateway and pods of its own node cross it too (docs/adr/0023-every-packet-crosses-the-overlay.md).

const (
	// Overhead is what WireGuard adds over IPv6, its largest case: our devices carry that much less than the pods' network. A packet is never
	// in the VXLAN and in the tunnel at once, so the 50 bytes of the VXLAN are covered.
	Overhead = 80
	// headers of TCP and IPv4, which the MSS does not count.
	headers = 40
	// minMTU is the packet that every IPv4 host must accept; a smaller measurement is wrong.
	minMTU = 576
)

// nodeMAC returns the hardware address of a node on the overlay.
func nodeMAC(address netip.Addr) hoststate.MAC {
	mac := hoststate.MAC{0x02, 0x4c}
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

// gatewayMAC returns the hardware address of the gateway of a lane on the overlay.
func gatewayMAC(lane int) hoststate.MAC {
	return hoststate.MAC{0x02, 0x4d, 0, 0, 0, byte(lane)}
}

// deviceMTU is the same for the overlay and the tunnel, so that the sender's own node reports a packet that is too big.
func (g validSnapshot) deviceMTU() int { return g.Self.PodMTU - Overhead }

// routeMTU returns the MTU of the routes to a peer: 0 unless the measured MTU is below that of the devices.
func (g validSnapshot) routeMTU(peer Peer) int {
	if peer.MTU <= 0 || max(peer.MTU, minMTU) >= g.deviceMTU() {
		return 0
	}
	return max(peer.MTU, minMTU)
}

// mss is computed here, because nftables looks up the MTU of the route back without our policy rule, and gets a wrong one.
func (g validSnapshot) mss(peer Peer) uint16 {
	mtu := g.deviceMTU()
	if smaller := g.routeMTU(peer); smaller != 0 {
		mtu = smaller
	}
	return uint16(min(mtu-headers, 1<<16-1))
}

// overlay returns the device of a host that sends from address.
func (g validSnapshot) overlay(mac hoststate.MAC, address netip.Addr) hoststate.Link {
	return hoststate.Link{Name: hoststate.VXLANLink, Kind: hoststate.VXLAN, MTU: g.deviceMTU(), MAC: mac, Local: address, Port: g.Local.VXLANPort}
}

// toGateways returns the neighbours of a node.
func (g validSnapshot) toGateways() (all []hoststate.Neighbour) {
	for _, gateway := range g.Gateways {
		all = append(all, hoststate.Neighbour{
			Link: hoststate.VXLANLink, Address: ipam.ProbeAddress(g.Local.External, gateway.Lane), MAC: gatewayMAC(gateway.Lane), Destination: gateway.Address,
		})
	}
	return all
}

// toNodes returns the neighbours of a gateway.
func (g validSnapshot) toNodes() (all []hoststate.Neighbour) {
	for _, node := range g.Nodes {
		all = append(all, hoststate.Neighbour{Link: hoststate.VXLANLink, Address: g.addresses[node.Name], MAC: nodeMAC(node.Address), Destination: node.Address})
	}
	return all
}

// overlayPacket returns a rule that matches the encapsulated packets of the overlay.
func (g validSnapshot) overlayPacket(verb hoststate.Verb) hoststate.PacketRule {
	return hoststate.PacketRule{Protocol: "udp", Port: g.Local.VXLANPort, Verb: verb}
}

// single returns the prefix that holds one address.
func single(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }
