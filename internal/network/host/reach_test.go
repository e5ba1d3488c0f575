// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/reach"
)

// TestReaches: what a kernel knows about a node with a link, a bridge, a route through a gateway and several, one to a pod, and ours.
func TestReaches(t *testing.T) {
	if !isolated(t) {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(link netlink.Link, address string) int {
		t.Helper()
		must(netlink.LinkAdd(link))
		must(netlink.LinkSetUp(link))
		parsed, err := netlink.ParseAddr(address)
		must(err)
		must(netlink.AddrAdd(link, parsed))
		return link.Attrs().Index
	}
	named := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }
	bridge := add(&netlink.Veth{LinkAttrs: named("br0"), PeerName: "far"}, "10.7.0.1/24")
	pod := add(&netlink.Veth{LinkAttrs: named("pod1"), PeerName: "in"}, "10.200.1.1/32")
	ours := add(&netlink.Veth{LinkAttrs: named(hoststate.VXLANLink), PeerName: "over"}, "242.0.0.9/24")
	for _, peer := range []string{"far", "in", "over"} {
		must(up(peer))
	}
	route := func(one netlink.Route, to string) {
		t.Helper()
		parsed, err := netlink.ParseIPNet(to)
		must(err)
		one.Dst = parsed
		must(netlink.RouteAdd(&one))
	}
	gateway, err := netlink.ParseAddr("10.7.0.9/32")
	must(err)
	route(netlink.Route{LinkIndex: bridge, Gw: gateway.IP}, "0.0.0.0/0")
	route(netlink.Route{LinkIndex: bridge, Gw: gateway.IP}, "10.8.0.0/16")
	route(netlink.Route{MultiPath: []*netlink.NexthopInfo{{LinkIndex: bridge, Gw: gateway.IP}, {LinkIndex: pod}}}, "10.9.0.0/16")
	route(netlink.Route{LinkIndex: pod, Scope: netlink.SCOPE_LINK}, "10.200.1.7/32")
	route(netlink.Route{Type: unix.RTN_BLACKHOLE}, "10.200.2.0/24")
	route(netlink.Route{LinkIndex: bridge, Gw: gateway.IP, Table: 100}, "10.10.0.0/16")
	route(netlink.Route{LinkIndex: ours, Scope: netlink.SCOPE_LINK}, "242.5.0.0/16")
	route(netlink.Route{LinkIndex: bridge, Gw: gateway.IP, Protocol: hoststate.RouteProtocol}, "10.11.0.0/16")

	h, err := Open(Options{})
	must(err)
	defer func() { must(h.Close()) }()
	facts, err := h.Reaches()
	must(err)
	want := "[{10.7.0.0/24 Link br0} {10.8.0.0/16 Route br0} {10.9.0.0/16 Route br0}]"
	if got := fmt.Sprint(reach.Networks(facts, 64)); got != want {
		t.Errorf("%s, want %s, from %+v", got, want, facts)
	}
}
