// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/netip"
	"slices"
)

// maxHosts bounds the single addresses in a policy. Beyond it, they are widened: a node network of public addresses then counts as a whole.
const maxHosts = 64

var (
	everything = prefixes("0.0.0.0/0", "::/0")
	// metadata are the services with which clouds give a node its credentials. They are denied even inside a network of the peering.
	metadata = prefixes("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32", "fe80::/10")
	// private are the networks in which nodes, pods and Services of clusters are, and those that lead to them: IPv4 addresses in
	// IPv6 ones (NAT64, Teredo, 6to4).
	private = slices.Concat(metadata, prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
		"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
		"::/8", "2001::/32", "2002::/16", "fc00::/7", "fec0::/10", "ff00::/8"))
	// remapped is where networks of peers are that no other network uses. It is one entry, so that the policies of a peer do not change with other peers.
	remapped = prefixes("240.0.0.0/4")
)

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, text := range all {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

// merged returns the networks in order, without those that lie in others.
func merged(networks []netip.Prefix) (all []netip.Prefix) {
	sorted := make([]netip.Prefix, 0, len(networks))
	for _, network := range networks {
		if network.IsValid() {
			sorted = append(sorted, network.Masked())
		}
	}
	slices.SortFunc(sorted, compare)
	for _, prefix := range sorted {
		if !slices.ContainsFunc(all, func(wide netip.Prefix) bool { return contains(wide, prefix) }) {
			all = append(all, prefix)
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return all
}

// compare orders wide networks before narrow ones, so that merged finds the wide one first.
func compare(a, b netip.Prefix) int {
	if a.Bits() != b.Bits() {
		return a.Bits() - b.Bits()
	}
	return a.Addr().Compare(b.Addr())
}

func contains(wide, narrow netip.Prefix) bool {
	return wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}

// public returns the networks and addresses that no private network contains: what a policy must except besides these.
func public(networks []netip.Prefix) (all []netip.Prefix) {
	for _, network := range networks {
		if !slices.ContainsFunc(private, func(wide netip.Prefix) bool { return contains(wide, network) }) {
			all = append(all, network)
		}
	}
	for _, bits := range []struct{ v4, v6 int }{{24, 64}, {16, 48}} {
		if all = merged(all); len(all) <= maxHosts {
			return all
		}
		for i, prefix := range all {
			limit := bits.v6
			if prefix.Addr().Is4() {
				limit = bits.v4
			}
			all[i] = netip.PrefixFrom(prefix.Addr(), min(prefix.Bits(), limit)).Masked()
		}
	}
	return merged(all)
}

// inside returns those of the networks that lie strictly inside another one; covered: the other one lies in one of them.
func inside(network netip.Prefix, others []netip.Prefix) (all []netip.Prefix, covered bool) {
	for _, prefix := range merged(others) {
		switch {
		case contains(prefix, network):
			return nil, true
		case contains(network, prefix):
			all = append(all, prefix)
		}
	}
	return all, false
}
