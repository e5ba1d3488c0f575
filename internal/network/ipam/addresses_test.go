// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestNodeAddresses(t *testing.T) {
	external, pods := prefix("10.70.0.0/16"), prefix("10.200.0.0/16")
	got := NodeAddresses(external, pods, []Node{
		{"n1", prefixes("10.200.1.0/24")},
		{"n2", prefixes("fd00::/64", "10.200.2.0/24")},
		{"duplicate of n1", prefixes("10.200.1.0/24")},
		{"elsewhere", prefixes("10.9.0.0/24")},
		{"too small", prefixes("10.200.3.4/30")},
		{"none", nil},
	})
	if got["n1"].String() != "10.70.1.0" || got["n2"].String() != "10.70.2.0" {
		t.Errorf("%v", got)
	}
	if len(got) != 6 {
		t.Errorf("%d of 6 nodes have an address: %v", len(got), got)
	}
}

// TestAddressesAreApart: for all sets of nodes, no two addresses are equal, and none is that of a mapping.
func TestAddressesAreApart(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		bits := 16 + random.IntN(7)
		external, pods := netip.PrefixFrom(prefix("10.70.0.0/16").Addr(), bits), netip.PrefixFrom(prefix("10.200.0.0/16").Addr(), bits)
		var nodes []Node
		for i := range random.IntN(int(size(external)/stride) + 1) {
			node := Node{Name: fmt.Sprint("n", i)}
			if random.IntN(3) > 0 {
				length := bits + random.IntN(31-bits)
				at := plus(pods.Addr(), random.Uint32N(size(pods)))
				node.PodCIDRs = []netip.Prefix{netip.PrefixFrom(at, length).Masked()}
			}
			nodes = append(nodes, node)
		}
		seen := map[netip.Addr]string{}
		for lane := range MaxLanes {
			address := ProbeAddress(external, lane)
			if IsMappable(external, address) || !external.Contains(address) {
				t.Fatalf("seed %d: probe %s", seed, address)
			}
			seen[address] = fmt.Sprint("probe of lane ", lane)
		}
		for name, address := range NodeAddresses(external, pods, nodes) {
			if seen[address] != "" || IsMappable(external, address) || !external.Contains(address) {
				t.Fatalf("seed %d: %s of %s, which %q has; mappable %t", seed, address, name, seen[address], IsMappable(external, address))
			}
			seen[address] = name
		}
	}
}

// The addresses do not depend on the order of the list of nodes, with or without networks of their own.
func TestNodeAddressesByName(t *testing.T) {
	external, pods := prefix("10.70.0.0/24"), prefix("10.200.0.0/24")
	var nodes []Node
	for i := range 12 {
		nodes = append(nodes, Node{Name: fmt.Sprint("n", i)})
	}
	first := NodeAddresses(external, pods, nodes)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for name, address := range NodeAddresses(external, pods, nodes) {
		if first[name] != address {
			t.Errorf("%s: %s, then %s", name, first[name], address)
		}
	}
}
