// SPDX-License-Identifier: Apache-2.0

// Package special knows the networks whose addresses belong to no host that another one reaches: they stand for the host that uses them, for all hosts, or for
// nothing. What a peer announces or names is never in them.
//
// It must not know which networks a cluster uses, nor read any. The proof is TestIs.
package special

import (
	"net/netip"
	"slices"
)

// IPv4 returns the networks of IPv4.
func IPv4() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	}
}

// Networks returns those of IPv4 and IPv6.
func Networks() []netip.Prefix {
	return append(
		IPv4(), netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
	)
}

var all = Networks()

// Is reports whether an address is in one of the networks.
func Is(address netip.Addr) bool {
	return slices.ContainsFunc(all, func(network netip.Prefix) bool { return network.Contains(address) })
}
