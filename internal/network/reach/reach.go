// SPDX-License-Identifier: Apache-2.0

// Package reach decides which networks a node reaches without Liqo, from its links, its main routing table and its resolvers, and makes a bounded list of
// them for the NodeReport of the node.
// Of the reports of all nodes it makes one list of what they reach together, in words for conditions and commands, and which nodes have not reported.
//
// It is pure: package host reads the kernel, and the role of a node writes the report. Its proof is a table of nodes with the links and routes that network
// plugins make, and a property: a list that had to be shortened covers everything that it covered before.
package reach

import (
	"bufio"
	"net/netip"
	"slices"
	"strings"

	"liqo.io/liqo/internal/network/ipam"
)

// Kind is how a node reaches a network.
type Kind string

// The kinds, those of a NodeReport.
const (
	ByLink     Kind = "Link"
	ByRoute    Kind = "Route"
	ByResolver Kind = "Resolver"
)

// Network is one network that a node reaches.
type Network struct {
	Prefix netip.Prefix
	Kind   Kind
	// Link leads there; "" if unknown.
	Link string
}

// Address is an address of a link of the node.
type Address struct {
	Link   string
	Prefix netip.Prefix
}

// Route is a unicast route of the main table of the node.
type Route struct {
	To   netip.Prefix
	Link string
	// Gateway: another host forwards the packets.
	Gateway bool
	// Connected: the kernel made it for an address of a link.
	Connected bool
}

// Facts are what the kernel and the files of a node show.
type Facts struct {
	Addresses []Address
	Routes    []Route
	// Skip are links that lead nowhere else: loopback, and those that Liqo made.
	Skip []string
	// Pairs are links whose other end is in another network namespace: each pod has one, but it may also be the way out of a node that is a container.
	Pairs []string
	// Resolvers are the servers that the node asks for names.
	Resolvers []netip.Addr
}

// Widest is the shortest mask of a network that counts. A route to more than that shows where everything else goes, as a default route does: some VPNs
// replace that by two halves.
const Widest = 8

// Networks returns what the node reaches, at most `most` networks, sorted, none inside another one.
func Networks(f Facts, most int) []Network {
	var all []Network
	add := func(prefix netip.Prefix, kind Kind, link string) {
		prefix = prefix.Masked()
		if ipam.Check(prefix) == nil && prefix.Bits() >= Widest && !slices.Contains(f.Skip, link) {
			all = append(all, Network{prefix, kind, link})
		}
	}
	for _, one := range f.Addresses {
		// An address alone is the node itself, which the kernel looks up before any rule of ours; proxies of Services give a node one for each.
		if one.Prefix.Bits() < one.Prefix.Addr().BitLen() {
			add(one.Prefix, ByLink, one.Link)
		}
	}
	for _, one := range f.Routes {
		kind := ByRoute
		if one.Connected {
			kind = ByLink
		}
		// The route to one pod. It comes and goes with the pod, and its address belongs to a network of this cluster.
		if pod := one.To.IsSingleIP() && !one.Gateway && slices.Contains(f.Pairs, one.Link); !pod {
			add(one.To, kind, one.Link)
		}
	}
	for _, one := range f.Resolvers {
		add(netip.PrefixFrom(one, one.BitLen()), ByResolver, "")
	}
	return shortened(outer(all), most)
}

// outer sorts networks and drops those inside others. Of equal ones, the first stays.
func outer(all []Network) (kept []Network) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Network) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	for _, one := range all {
		if n := len(kept); n == 0 || !kept[n-1].Prefix.Overlaps(one.Prefix) {
			kept = append(kept, one)
		}
	}
	return kept
}

// shortened joins neighbours, those that are nearest to each other first, until the list is short enough. What it then covers in addition is not led to a
// peer either, which is the safe side. Networks that have less than eight bits in common are not joined: the smallest ones are left out then.
func shortened(all []Network, most int) []Network {
	// Joining pair by pair costs the square of their number, so a table that is very long is made shorter as a whole first.
	for bits := 24; len(all) > 4*most && bits >= Widest; bits -= 4 {
		for i := range all {
			if one := &all[i]; one.Prefix.Bits() > bits {
				one.Prefix = netip.PrefixFrom(one.Prefix.Addr(), bits).Masked()
			}
		}
		all = outer(all)
	}
	for len(all) > most {
		at, bits := 0, -1
		for i := range len(all) - 1 {
			if common := commonBits(all[i].Prefix, all[i+1].Prefix); common > bits {
				at, bits = i, common
			}
		}
		if bits < Widest {
			smallest := 0
			for i := range all {
				if all[i].Prefix.Bits() > all[smallest].Prefix.Bits() {
					smallest = i
				}
			}
			all = slices.Delete(all, smallest, smallest+1)
			continue
		}
		joined := all[at]
		joined.Prefix = netip.PrefixFrom(joined.Prefix.Addr(), bits).Masked()
		if joined.Link != all[at+1].Link {
			joined.Link = ""
		}
		if joined.Kind != all[at+1].Kind {
			joined.Kind = ByRoute
		}
		all[at] = joined
		all = outer(slices.Delete(all, at+1, at+2))
	}
	return all
}

// commonBits returns the longest mask of a network that holds two.
func commonBits(a, b netip.Prefix) int {
	for bits := min(a.Bits(), b.Bits()); ; bits-- {
		if one := netip.PrefixFrom(a.Addr(), bits).Masked(); bits == 0 || one.Contains(b.Addr()) {
			return bits
		}
	}
}

// maxResolvers bounds how many lines of a file of resolvers count. The C library reads three.
const maxResolvers = 16

// Resolvers returns the IPv4 addresses in the text of a resolv.conf.
func Resolvers(text string) (all []netip.Addr) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() && len(all) < maxResolvers {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(words[1]); err == nil && address.Unmap().Is4() {
			all = append(all, address.Unmap())
		}
	}
	return all
}
