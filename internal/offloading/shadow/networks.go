// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/special"
)

// ExternalNetworks returns the networks of a peer that the administrator wrote down, for clusters that another network than that of Liqo joins. What is
// no network, and what contains addresses of this cluster or special ones, does not count: with it the peer could name our own hosts.
func ExternalNetworks(fc *discoveryv1alpha1.ForeignCluster, own []netip.Prefix) (networks []netip.Prefix) {
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

// OwnNetworks returns the networks of this cluster, and the addresses and pod networks of its nodes. nodes must not have virtual ones.
func OwnNetworks(configured []netip.Prefix, nodes []corev1.Node) []netip.Prefix {
	own := slices.Clone(configured)
	for i := range nodes {
		for _, text := range nodes[i].Spec.PodCIDRs {
			if network, err := netip.ParsePrefix(text); err == nil {
				own = append(own, network.Masked())
			}
		}
		for _, one := range nodes[i].Status.Addresses {
			if address, err := netip.ParseAddr(one.Address); err == nil {
				own = append(own, netip.PrefixFrom(address.WithZone(""), address.BitLen()))
			}
		}
	}
	return own
}
