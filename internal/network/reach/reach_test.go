// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func text(all []Network) string {
	var lines []string
	for _, one := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", one.Prefix, one.Kind, one.Link)))
	}
	return strings.Join(lines, ", ")
}

func TestNetworks(t *testing.T) {
	for name, row := range map[string]struct {
		facts Facts
		want  string
	}{
		"nothing": {Facts{}, ""},
		"a virtual machine": {Facts{
			Addresses: []Address{{"lo", prefix("127.0.0.1/8")}, {"eth0", prefix("10.0.12.7/24")}},
			Routes: []Route{
				{To: prefix("0.0.0.0/0"), Link: "eth0", Gateway: true},
				{To: prefix("10.0.12.0/24"), Link: "eth0", Connected: true},
				{To: prefix("169.254.169.254/32"), Link: "eth0", Gateway: true},
				{To: prefix("172.30.0.0/16"), Link: "eth0", Gateway: true},
			},
			Skip: []string{"lo"}, Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("127.0.0.53")},
		}, "10.0.0.2/32 Resolver, 10.0.12.0/24 Link eth0, 172.30.0.0/16 Route eth0"},
		"a route without an address, and the halves of a default route": {Facts{
			Routes: []Route{
				{To: prefix("0.0.0.0/1"), Link: "tun0"},
				{To: prefix("128.0.0.0/1"), Link: "tun0"},
				{To: prefix("10.8.0.0/24"), Link: "tun0"},
				{To: prefix("10.0.0.0/7"), Link: "tun0"},
			},
		}, "10.8.0.0/24 Route tun0"},
		"what Liqo made": {Facts{
			Addresses: []Address{{"liqo.vxlan", prefix("242.0.0.9/24")}}, Routes: []Route{{To: prefix("242.1.0.0/16"), Link: "liqo.vxlan"}},
			Skip: []string{"liqo.vxlan"},
		}, ""},
		"routes to pods, and a node that is a container": {Facts{
			Addresses: []Address{{"eth0", prefix("172.18.0.3/16")}, {"veth1", prefix("10.200.1.1/32")}, {"kube-ipvs0", prefix("10.96.0.1/32")}},
			Routes: []Route{
				{To: prefix("10.200.1.5/32"), Link: "veth1"},
				{To: prefix("10.200.2.0/24"), Link: "eth0", Gateway: true},
				{To: prefix("10.9.9.9/32"), Link: "eth0", Gateway: true},
			},
			Pairs: []string{"eth0", "veth1"},
		}, "10.9.9.9/32 Route eth0, 10.200.2.0/24 Route eth0, 172.18.0.0/16 Link eth0"},
		"one inside another, and the same twice": {Facts{
			Addresses: []Address{{"eth0", prefix("10.1.2.3/24")}},
			Routes: []Route{
				{To: prefix("10.1.0.0/16"), Link: "eth1", Gateway: true},
				{To: prefix("10.1.2.0/24"), Link: "eth0", Connected: true},
				{To: prefix("10.1.0.0/16"), Link: "eth2"},
			},
		}, "10.1.0.0/16 Route eth1"},
		"IPv6 and what no host has": {Facts{
			Addresses: []Address{{"eth0", prefix("fd00::1/64")}}, Routes: []Route{{To: prefix("224.0.0.0/4"), Link: "eth0"}, {To: prefix("fd00::/64"), Link: "eth0"}},
		}, ""},
	} {
		if got := text(Networks(row.facts, 64)); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, row.want)
		}
	}
}

// TestShortened: however many routes a node has, its list is bounded, and covers every network of at most eight bits in common with another one.
func TestShortened(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var f Facts
		for range 1 + random.IntN(300) {
			address := netip.AddrFrom4([4]byte{10, byte(random.IntN(256)), byte(random.IntN(256)), byte(random.IntN(256))})
			f.Routes = append(f.Routes, Route{To: netip.PrefixFrom(address, 8+random.IntN(25)).Masked(), Gateway: true})
		}
		most := 1 + random.IntN(64)
		got := Networks(f, most)
		if len(got) > most {
			t.Fatalf("seed %d: %d networks, want at most %d", seed, len(got), most)
		}
		for i, one := range got {
			if i > 0 && (got[i-1].Prefix.Overlaps(one.Prefix) || got[i-1].Prefix.Addr().Compare(one.Prefix.Addr()) >= 0) || one.Prefix.Bits() < Widest {
				t.Errorf("seed %d: %s", seed, text(got))
			}
		}
		for _, route := range f.Routes {
			if !slices.ContainsFunc(got, func(one Network) bool {
				return one.Prefix.Bits() <= route.To.Bits() && one.Prefix.Contains(route.To.Addr())
			}) {
				t.Errorf("seed %d: %s is not covered by %s", seed, route.To, text(got))
			}
		}
		if again := Networks(f, most); text(again) != text(got) {
			t.Errorf("seed %d: another list from the same facts", seed)
		}
	}
	var apart Facts
	for i := range byte(100) {
		apart.Routes = append(apart.Routes, Route{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{i + 1, 2, 3, 0}), 24), Gateway: true})
	}
	if got := Networks(apart, 64); len(got) != 64 {
		t.Errorf("%d networks", len(got))
	}
}

func TestResolvers(t *testing.T) {
	file := "# made by DHCP\nsearch example.org\nnameserver 10.0.0.2\n nameserver\t10.0.0.3 # second\nnameserver fd00::1\nnameserver " +
		"::ffff:10.0.0.4\nnameserver nonsense\nnameserver\noptions ndots:5\n"
	if got := fmt.Sprint(Resolvers(file)); got != "[10.0.0.2 10.0.0.3 10.0.0.4]" {
		t.Error(got)
	}
	if got := Resolvers(strings.Repeat("nameserver 10.0.0.2\n", 100)); len(got) != maxResolvers {
		t.Errorf("%d resolvers", len(got))
	}
}
