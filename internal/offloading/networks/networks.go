// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/special"
)

// External returns the networks of a peer that the administrator wrote down, for clusters that another network than that of Liqo joins. What is
// no network, and what contains addresses of this cluster or special ones, does not count: with it the peer could name our own hosts.
func External(fc *discoveryv1alpha1.ForeignCluster, own []netip.Prefix) (networks []netip.Prefix) {
	if fc == nil {
		return nil
	}
	for _, text := range fc.PodCIDRs() {
		network, err := netip.ParsePrefix(text)
		overlaps := func(other netip.Prefix) bool { return other.Overlaps(network) }
		if err == nil && network == network.Masked() && !slices.ContainsFunc(own, overlaps) && !slices.ContainsFunc(special.Networks(), overlaps) {
			networks = append(networks, network)
		}
	}
	return networks
}

// Own returns the networks of this cluster, and the addresses and pod networks of its nodes. nodes must not have virtual ones.
func Own(configured []netip.Prefix, nodes []corev1.Node) []netip.Prefix {
	own := slices.Clone(configured)
	for i := range nodes {
		for _, text := range nodes[i].Spec.PodCIDRs {
			if network, err := netip.ParsePrefix(text); err == nil {
				own = append(own, network.Masked())
			}
		}
		for _, nodeAddress := range nodes[i].Status.Addresses {
			if address, err := netip.ParseAddr(nodeAddress.Address); err == nil {
				own = append(own, netip.PrefixFrom(address.WithZone(""), address.BitLen()))
			}
		}
	}
	return own
}

// OfTunnel returns the prefixes that packets to the peer may have as destination: its pods, and its external network.
func OfTunnel(tunnel *netv1alpha1.TunnelEndpoint) (all []netip.Prefix) {
	if tunnel == nil {
		return nil
	}
	spec := &tunnel.Spec
	for _, network := range [][2]string{{string(spec.RemotePodCIDR), spec.RemoteNATPodCIDR}, {string(spec.RemoteExternalCIDR), spec.RemoteNATExternalCIDR}} {
		text := network[0]
		if network[1] != "" && network[1] != notRemapped {
			text = network[1]
		}
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}

// notRemapped is the value in a TunnelEndpoint for a network that keeps its addresses.
const notRemapped = "None"
