// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/netip"
	"slices"
)

// mostHosts bounds the single addresses in a policy. Beyond it, they are widened: a node network of public addresses then counts as a whole.
const mostHosts = 64

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
	for _, one := range all {
		parsed = append(parsed, netip.MustParsePrefix(one))
	}
	return parsed
}

// merged returns the networks in order, without those that lie in others.
func merged(networks []netip.Prefix) (all []netip.Prefix) {
	sorted := make([]netip.Prefix, 0, len(networks))
	for _, one := range networks {
		if one.IsValid() {
			sorted = append(sorted, one.Masked())
		}
	}
	slices.SortFunc(sorted, compare)
	for _, one := range sorted {
		if !slices.ContainsFunc(all, func(wide netip.Prefix) bool { return contains(wide, one) }) {
			all = append(all, one)
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
	for _, one := range networks {
		if !slices.ContainsFunc(private, func(wide netip.Prefix) bool { return contains(wide, one) }) {
			all = append(all, one)
		}
	}
	for _, bits := range []struct{ v4, v6 int }{{24, 64}, {16, 48}} {
		if all = merged(all); len(all) <= mostHosts {
			return all
		}
		for i, one := range all {
			limit := bits.v6
			if one.Addr().Is4() {
				limit = bits.v4
			}
			all[i] = netip.PrefixFrom(one.Addr(), min(one.Bits(), limit)).Masked()
		}
	}
	return merged(all)
}

// inside returns those of the networks that lie strictly inside another one; covered: the other one lies in one of them.
func inside(network netip.Prefix, others []netip.Prefix) (all []netip.Prefix, covered bool) {
	for _, one := range merged(others) {
		switch {
		case contains(one, network):
			return nil, true
		case contains(network, one):
			all = append(all, one)
		}
	}
	return all, false
}
