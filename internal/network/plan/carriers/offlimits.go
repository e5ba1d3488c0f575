// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/network/plan"
)

// Dialable refuses addresses that cannot be those of another host.
func Dialable(address netip.Addr) error {
	if address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() ||
		address == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("address %s is loopback, link-local, multicast or broadcast; want that of a host", address)
	}
	return nil
}

// OffLimits are the addresses that no tunnel may lead to.
type OffLimits struct {
	// Remote networks are reached through tunnels. No name of a peer may resolve to an address of own networks or nodes.
	Remote, own []netip.Prefix
	nodes       []netip.Addr
	// Private: addresses of private networks are refused as well.
	Private bool
}

// privateNetworks are those that no host in the Internet has an address in.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fc00::/7"),
}

func OffLimitsOf(s plan.Snapshot, private bool) (off OffLimits) {
	off.Private = private
	for _, peer := range s.Peers {
		off.Remote = append(off.Remote, peer.RemotePods, peer.RemoteExternal)
	}
	off.own = append(slices.Clone(s.Local.PodCIDRs), s.Local.External)
	for _, node := range s.Nodes {
		off.nodes = append(off.nodes, node.Address)
	}
	return off
}

func (o OffLimits) IsRemote(address netip.Addr) bool { return within(o.Remote, address) }

// Refuse returns why an address of a host is not dialled; nil if it may be.
func (o OffLimits) Refuse(address netip.Addr, host string) error {
	_, err := netip.ParseAddr(host)
	switch named := err != nil; {
	case o.IsRemote(address):
		return fmt.Errorf("address %s is in a network that is itself reached through a tunnel", address)
	case o.Private && within(privateNetworks, address):
		return fmt.Errorf("address %s is private, and gateway.config.privateEndpoints is false", address)
	case named && (within(o.own, address) || slices.Contains(o.nodes, address)):
		return fmt.Errorf("address %s belongs to this cluster, so the peer's gateway cannot be there", address)
	}
	return nil
}

func within(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}
