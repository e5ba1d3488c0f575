// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/host/events"
	"liqo.io/liqo/internal/network/host/filter"
	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

// here is a host in the namespace of the test, and one private key.
type here struct {
	*Host
	*testing.T
	key wgtypes.Key
}

func open(t *testing.T) *here {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	fatal(t, err)
	// The link the overlay goes over.
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "eth0"
	fatal(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}))
	link, err := netlink.LinkByName("eth0")
	fatal(t, err)
	fatal(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: kernel.IPNet(prefix("10.200.9.2/24"))}))
	fatal(t, netlink.LinkSetUp(link))
	h, err := Open(Options{PrivateKey: func(public string) ([32]byte, bool) { return key, public == key.PublicKey().String() }})
	fatal(t, err)
	host := &here{Host: h, T: t, key: key}
	t.Cleanup(func() { fatal(t, host.Close()) })
	return host
}

// apply returns the changes, a line each.
func (h *here) apply(want hoststate.State) []string {
	h.Helper()
	changes, err := h.Apply(h.Context(), want)
	fatal(h.T, err)
	var lines []string
	for _, one := range changes {
		lines = append(lines, one.String())
	}
	return lines
}

// settled applies, then checks that a second time changes nothing.
func (h *here) settled(want hoststate.State) []string {
	h.Helper()
	lines := h.apply(want)
	if again := h.apply(want); len(again) > 0 {
		h.Errorf("applying the same again changed\n%s", strings.Join(again, "\n"))
	}
	return lines
}

// gateway returns a state with every kind of object.
func (h *here) gateway() hoststate.State {
	peer, err := wgtypes.GeneratePrivateKey()
	fatal(h.T, err)
	own := &cluster{key: h.key, podsHere: "10.201.0.0/16", nodesHere: "10.74.0.0/24", podsThere: "10.202.0.0/16", nodesThere: "10.73.0.0/24"}
	state := own.gatewayState(&cluster{key: peer})
	state.Routes[0].MTU = 1300
	state.WireGuard.Peers[0].Endpoint = netip.MustParseAddrPort("192.0.2.7:5871")
	return state
}

// snapshot shows all links, addresses, neighbours, routes, rules, tables and peers there are.
func snapshot(t *testing.T) string {
	t.Helper()
	var lines []string
	links, err := netlink.LinkList()
	fatal(t, err)
	for _, link := range links {
		a := link.Attrs()
		lines = append(lines, fmt.Sprint("link ", a.Name, " ", link.Type(), " ", a.MTU, " ", a.HardwareAddr, " ", a.Flags&net.FlagUp))
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		fatal(t, err)
		for _, one := range addresses {
			lines = append(lines, fmt.Sprint("address ", one.IPNet, " ", a.Name))
		}
		for _, family := range []int{netlink.FAMILY_V4, unix.AF_BRIDGE} {
			neighbours, err := netlink.NeighList(a.Index, family)
			fatal(t, err)
			for _, one := range neighbours {
				if a.Name == "eth0" {
					continue // come and go with the kernel's own doings
				}
				lines = append(lines, fmt.Sprint("neighbour ", one.IP, " ", one.HardwareAddr, " ", one.State, " ", a.Name))
			}
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	fatal(t, err)
	for _, one := range routes {
		lines = append(lines, fmt.Sprint("route ", one.Dst, " via ", one.Gw, " src ", one.Src, " type ", one.Type, " protocol ", int(one.Protocol),
			" mtu ", one.MTU, " metric ", one.Priority, " table ", one.Table, " flags ", one.Flags))
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	fatal(t, err)
	for _, one := range rules {
		lines = append(lines, fmt.Sprintf("%s iif %s proto %d", one, one.IifName, one.IPProto))
	}
	conn, err := nftables.New()
	fatal(t, err)
	chains, err := conn.ListChains()
	fatal(t, err)
	for _, chain := range chains {
		rules, err := conn.GetRules(chain.Table, chain)
		fatal(t, err)
		lines = append(lines, fmt.Sprint("chain ", chain.Table.Name, " ", chain.Name, " ", len(rules)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestApplyAndRemove(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	before := snapshot(t)
	if changes := h.settled(hoststate.State{}); len(changes) > 0 {
		t.Errorf("an empty state changed an empty host: %v", changes)
	}
	want := h.gateway()
	first := h.settled(want)
	for _, name := range ourLinks {
		link, err := netlink.LinkByName(name)
		fatal(t, err)
		if addresses, err := netlink.AddrList(link, netlink.FAMILY_V6); err != nil || len(addresses) > 0 {
			t.Errorf("%s has addresses that are not planned: %v, %v", name, addresses, err)
		}
	}
	if nextHops, err := h.NextHops(); err != nil || len(nextHops) == 0 ||
		slices.ContainsFunc(want.Routes, func(r hoststate.Route) bool { return r.Via.IsValid() && nextHops[r.To] != r.Via }) {
		t.Errorf("ways %v, %v", nextHops, err)
	}
	for _, line := range first {
		if !strings.HasPrefix(line, "add ") && !strings.Contains(line, "wireguard") {
			t.Errorf("on an empty host: %s", line)
		}
	}
	if got := h.Implementation(); got != kernelImplementation && got != userspaceImplementation {
		t.Errorf("implementation is %q", got)
	}
	peers, err := h.Tunnel()
	fatal(t, err)
	if len(peers) != 1 || peers[0].PublicKey != want.WireGuard.Peers[0].PublicKey || peers[0].Endpoint != want.WireGuard.Peers[0].Endpoint {
		t.Errorf("tunnel has %+v", peers)
	}
	t.Logf("host:\n%s", snapshot(t))

	// Half of the objects are no longer wanted.
	less := want
	less.Routes = want.Routes[:3]
	less.Rules, less.Neighbours = want.Rules[:1], nil
	for _, line := range h.settled(less) {
		if !strings.HasPrefix(line, "delete ") {
			t.Errorf("with less wanted: %s", line)
		}
	}
	h.settled(hoststate.State{})
	if after := snapshot(t); after != before {
		t.Errorf("when nothing is wanted any more, there is\n%s\nand there was\n%s", after, before)
	}
	if got := h.Implementation(); got != "" {
		t.Errorf("implementation without a device is %q", got)
	}
	if peers, err := h.Tunnel(); err != nil || peers != nil {
		t.Errorf("tunnel without a device: %v, %v", peers, err)
	}
}

// TestRepair damages a host in every way, and checks that each damage is notified and repaired.
func TestRepair(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	h.settled(want)
	healthy := snapshot(t)

	link := func(name string) netlink.Link {
		t.Helper()
		l, err := netlink.LinkByName(name)
		fatal(t, err)
		return l
	}
	nft := func(do func(*nftables.Conn, *nftables.Table)) error {
		conn, err := nftables.New()
		fatal(t, err)
		do(conn, &nftables.Table{Name: hoststate.NFTable, Family: nftables.TableFamilyIPv4})
		return conn.Flush()
	}
	neighbour := func(state int, mac string) *netlink.Neigh {
		hardware, err := net.ParseMAC(mac)
		fatal(t, err)
		return &netlink.Neigh{LinkIndex: link(hoststate.VXLANLink).Attrs().Index, State: state, IP: net.ParseIP(nodeOverlay), HardwareAddr: hardware}
	}
	route := func(to string) *netlink.Route {
		return &netlink.Route{
			Dst: kernel.IPNet(prefix(to)), Table: hoststate.Table, Protocol: hoststate.RouteProtocol,
			LinkIndex: link(hoststate.VXLANLink).Attrs().Index, Gw: net.ParseIP(nodeOverlay), Flags: int(netlink.FLAG_ONLINK),
		}
	}
	rule := netlink.NewRule()
	rule.Priority, rule.Table, rule.IifName = hoststate.FirstRule, hoststate.Table, hoststate.TunnelLink
	extraRule := netlink.NewRule()
	extraRule.Priority, extraRule.Table, extraRule.Mark = hoststate.LastRule, hoststate.Table, 7

	for _, damage := range []struct {
		what string
		do   func() error
	}{
		{"table flushed", func() error { return nft((*nftables.Conn).FlushTable) }},
		{"table deleted", func() error { return nft((*nftables.Conn).DelTable) }},
		{"chain deleted", func() error {
			return nft(func(c *nftables.Conn, table *nftables.Table) {
				chain := &nftables.Chain{Name: "forwarding", Table: table}
				c.FlushChain(chain)
				c.DelChain(chain)
			})
		}},
		{"rule of another program in our table", func() error {
			return nft(func(c *nftables.Conn, table *nftables.Table) {
				w := &filter.RuleWriter{Conn: c, Table: table}
				fatal(t, w.Rule(hoststate.PacketRule{Verb: hoststate.Drop}))
				c.AddRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "incoming"}, Exprs: w.Exprs})
			})
		}},
		{"vxlan down", func() error { return netlink.LinkSetDown(link(hoststate.VXLANLink)) }},
		{"tunnel down", func() error { return netlink.LinkSetDown(link(hoststate.TunnelLink)) }},
		{"vxlan deleted", func() error { return netlink.LinkDel(link(hoststate.VXLANLink)) }},
		{"tunnel deleted", func() error { return netlink.LinkDel(link(hoststate.TunnelLink)) }},
		{"other MTU", func() error { return netlink.LinkSetMTU(link(hoststate.VXLANLink), 1200) }},
		{"other hardware address", func() error {
			return netlink.LinkSetHardwareAddr(link(hoststate.VXLANLink), net.HardwareAddr{2, 0, 0, 0, 0, 9})
		}},
		{"another link of our name", func() error {
			fatal(t, netlink.LinkDel(link(hoststate.VXLANLink)))
			attributes := netlink.NewLinkAttrs()
			attributes.Name = hoststate.VXLANLink
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
		}},
		{"another TUN of the tunnel's name", func() error {
			fatal(t, netlink.LinkDel(link(hoststate.TunnelLink)))
			attributes := netlink.NewLinkAttrs()
			attributes.Name = hoststate.TunnelLink
			return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attributes, Mode: netlink.TUNTAP_MODE_TUN})
		}},
		{"VXLAN of another VNI", func() error {
			fatal(t, netlink.LinkDel(link(hoststate.VXLANLink)))
			attributes := netlink.NewLinkAttrs()
			attributes.Name, attributes.HardwareAddr = hoststate.VXLANLink, gatewayMAC[:]
			return netlink.LinkAdd(&netlink.Vxlan{
				LinkAttrs: attributes, VxlanId: 7, Port: hoststate.DefaultVXLANPort, SrcAddr: net.ParseIP("10.200.9.2"), UDPCSum: true,
			})
		}},
		{"address deleted", func() error {
			return netlink.AddrDel(link(hoststate.VXLANLink), &netlink.Addr{IPNet: kernel.IPNet(prefix(gatewayOverlay + "/32"))})
		}},
		{"another address", func() error {
			return netlink.AddrAdd(link(hoststate.VXLANLink), &netlink.Addr{IPNet: kernel.IPNet(prefix("10.99.0.1/32"))})
		}},
		{"neighbour deleted", func() error { return netlink.NeighDel(neighbour(netlink.NUD_PERMANENT, "02:fa:b0:00:01:01")) }},
		{"neighbour not permanent", func() error { return netlink.NeighSet(neighbour(netlink.NUD_STALE, "02:fa:b0:00:01:01")) }},
		{"neighbour elsewhere", func() error { return netlink.NeighSet(neighbour(netlink.NUD_PERMANENT, "02:fa:b0:00:01:77")) }},
		{"forwarding deleted", func() error {
			n := neighbour(netlink.NUD_PERMANENT, "02:fa:b0:00:01:01")
			n.Family, n.Flags, n.IP = unix.AF_BRIDGE, netlink.NTF_SELF, net.ParseIP("10.200.9.1")
			return netlink.NeighDel(n)
		}},
		{"forwarding elsewhere", func() error {
			n := neighbour(netlink.NUD_PERMANENT, "02:fa:b0:00:01:01")
			n.Family, n.Flags, n.IP = unix.AF_BRIDGE, netlink.NTF_SELF, net.ParseIP("10.200.9.66")
			return netlink.NeighSet(n)
		}},
		{"route deleted", func() error { return netlink.RouteDel(route(pods)) }},
		{"blackhole deleted", func() error {
			return netlink.RouteDel(&netlink.Route{Dst: kernel.IPNet(prefix("10.201.0.0/16")), Type: unix.RTN_BLACKHOLE, Priority: 9999})
		}},
		{"route without its MTU", func() error { return netlink.RouteReplace(route(pods)) }},
		{"route through a link of another program", func() error {
			r := route(pods)
			r.LinkIndex, r.Gw = link("eth0").Attrs().Index, net.ParseIP("10.200.9.1")
			return netlink.RouteReplace(r)
		}},
		{"one more route with our protocol", func() error { return netlink.RouteAdd(route("10.98.0.0/16")) }},
		{"rule deleted", func() error { return netlink.RuleDel(rule) }},
		{"one more rule of ours", func() error { return netlink.RuleAdd(extraRule) }},
	} {
		t.Run(damage.what, func(t *testing.T) {
			h := &here{Host: h.Host, T: t}
			drain(h.Changed())
			fatal(t, damage.do())
			select {
			case <-h.Changed():
			case <-time.After(30 * time.Second):
				t.Error("no notification")
			}
			if damaged := snapshot(t); damaged == healthy {
				t.Fatal("the damage changed nothing, so this test proves nothing")
			}
			t.Log(h.settled(want))
			if now := snapshot(t); now != healthy {
				t.Errorf("after the repair there is\n%s\nand there was\n%s", now, healthy)
			}
		})
	}
}

// drain waits until past events have been notified.
func drain(changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-time.After(3 * events.Debounce):
			return
		}
	}
}

// TestForeign surrounds our objects with those of other programs, as similar as possible.
func TestForeign(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	eth0, err := netlink.LinkByName("eth0")
	fatal(t, err)
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "liqo.other"
	fatal(t, netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attributes, VxlanId: hoststate.VNI + 1, Port: 4790}))
	for _, r := range []netlink.Route{
		{Dst: kernel.IPNet(prefix("10.50.0.0/16")), Table: hoststate.Table, Protocol: 4},                // our table
		{Dst: kernel.IPNet(prefix(pods)), Table: hoststate.Table, Protocol: 4, Priority: 50},            // and our destination
		{Dst: kernel.IPNet(prefix("10.51.0.0/16")), Table: unix.RT_TABLE_MAIN, Protocol: 99},            // a protocol beside ours
		{Dst: kernel.IPNet(prefix("10.201.0.0/16")), Table: 100, Protocol: unix.RTPROT_STATIC},          // a remote network, other table
		{Dst: kernel.IPNet(prefix("10.202.0.0/16")), Table: hoststate.Table, Protocol: 0, Priority: 77}, // no protocol
	} {
		r.LinkIndex = eth0.Attrs().Index
		fatal(t, netlink.RouteAdd(&r))
	}
	for _, change := range []func(*netlink.Rule){
		func(r *netlink.Rule) { r.Table = 100 },                        // our priority, another table
		func(r *netlink.Rule) { r.Priority = hoststate.FirstRule - 1 }, // our table, another priority
		func(r *netlink.Rule) { r.Priority = hoststate.LastRule + 1 },  // the same
		func(r *netlink.Rule) { r.Table, r.Mark = 100, 0x4000 },        // and more
		func(r *netlink.Rule) { r.Table, r.Priority = 100, 5*100 },     // nothing of ours
	} {
		r := netlink.NewRule()
		r.Priority, r.Table, r.Dst = hoststate.FirstRule, hoststate.Table, kernel.IPNet(prefix("10.201.0.0/16"))
		change(r)
		fatal(t, netlink.RuleAdd(r))
	}
	conn, err := nftables.New()
	fatal(t, err)
	for name, family := range map[string]nftables.TableFamily{"liqo": nftables.TableFamilyINet, "liqo-other": nftables.TableFamilyIPv4} {
		table := conn.AddTable(&nftables.Table{Name: name, Family: family})
		conn.AddChain(&nftables.Chain{Name: "incoming", Table: table})
	}
	fatal(t, conn.Flush())
	before := snapshot(t)

	h.settled(h.gateway())
	h.settled(hoststate.State{})
	if after := snapshot(t); after != before {
		t.Errorf("of others there is\n%s\nand there was\n%s", after, before)
	}

	// A route of another program with the key of a wanted one stays, and Apply returns an error; the rest is applied.
	want := h.gateway()
	want.Routes[0].Metric = 50
	changes, err := h.Apply(t.Context(), want)
	if err == nil || !strings.Contains(err.Error(), "another program") || len(changes) < 10 {
		t.Errorf("a place that is taken: %v, with %d changes", err, len(changes))
	}
	h.settled(hoststate.State{})
	if after := snapshot(t); after != before {
		t.Errorf("of others there is\n%s\nand there was\n%s", after, before)
	}
}

func TestErrorsDoNotStop(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	want.Links[0].Kind = "tunnel of love"
	want.Rules = append(slices.Clone(want.Rules), hoststate.Rule{Priority: 5, Table: hoststate.Table})
	_, err := h.Apply(t.Context(), want)
	for _, part := range []string{`kind of link "tunnel of love"`, "rule 5", "link " + hoststate.VXLANLink + " does not exist"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
	if peers, err := h.Tunnel(); err != nil || len(peers) != 1 {
		t.Errorf("the tunnel was not made: %v, %v", peers, err)
	}
	healthy := h.gateway()
	healthy.WireGuard.Peers = want.WireGuard.Peers
	h.settled(healthy)
}

// TestAttackM10: a kernel that refuses the filter gives a peer nothing to go through: neither tunnel nor overlay, and packets for peers are dropped. An
// earlier filter that is still in place keeps established connections.
func TestAttackM10(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	broken := want
	broken.Chains = append(slices.Clone(want.Chains), hoststate.Chain{ // longer than any name in the kernel
		Name: strings.Repeat("x", 300), Hook: hoststate.Input, Rules: []hoststate.PacketRule{{Verb: hoststate.Drop}},
	})
	unknown := want
	unknown.Chains = append(slices.Clone(want.Chains), hoststate.Chain{Name: "blessed", Hook: hoststate.Input, Rules: []hoststate.PacketRule{{Verb: "bless"}}})
	expect := func(what string, open bool, err error) {
		t.Helper()
		if errors.Is(err, errUnfiltered) == open {
			t.Errorf("%s: %v", what, err)
		}
		peers, err := h.Tunnel()
		fatal(t, err)
		if (len(peers) > 0) != open {
			t.Errorf("%s: the tunnel has the peers %+v", what, peers)
		}
		for _, name := range ourLinks {
			if _, err := netlink.LinkByName(name); (err == nil) != open {
				t.Errorf("%s: link %s: %v", what, name, err)
			}
		}
		routes, err := h.routes(true)
		fatal(t, err)
		blackholes := 0
		for _, one := range routes {
			if one.Blackhole {
				blackholes++
			} else if !open {
				t.Errorf("%s: there is %s", what, one)
			}
		}
		wanted := slices.DeleteFunc(slices.Clone(want.Routes), func(r hoststate.Route) bool { return !r.Blackhole })
		if blackholes != len(wanted) {
			t.Errorf("%s: %d of %d blackholes", what, blackholes, len(wanted))
		}
	}
	for _, state := range []hoststate.State{broken, unknown} {
		_, err := h.Apply(t.Context(), state)
		expect("refused at first", false, err)
	}
	h.settled(want)
	expect("written", true, nil)
	_, err := h.Apply(t.Context(), broken)
	if err == nil {
		t.Error("the kernel accepts the table; this test needs another one that it refuses")
	}
	expect("refused, the earlier one is in place", true, err)
	conn, err := nftables.New()
	fatal(t, err)
	conn.FlushTable(&nftables.Table{Name: hoststate.NFTable, Family: nftables.TableFamilyIPv4})
	fatal(t, conn.Flush())
	_, err = h.Apply(t.Context(), broken)
	expect("refused, the earlier one was emptied", false, err)
	if changes, _ := h.Apply(t.Context(), broken); len(changes) > 0 {
		t.Errorf("applying the same again changed %v", changes)
	}
	h.settled(want)
	expect("repaired", true, nil)
}

// TestReplacedRules moves rules that differ from others only in additional selectors.
func TestReplacedRules(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	to := hoststate.Rule{Priority: hoststate.FirstRule, To: prefix("10.201.0.0/16"), Table: hoststate.Table}
	narrow := to
	narrow.Protocol = "icmp"
	narrower := narrow
	narrower.InLink = "eth0"
	for _, want := range [][]hoststate.Rule{{narrower, narrow, to}, {narrower, narrow}, {narrow, to}, {narrow}, {narrower, to}, {narrower}} {
		h.settled(hoststate.State{Rules: want})
		rules, err := netlink.RuleList(netlink.FAMILY_V4)
		fatal(t, err)
		var have []hoststate.Rule
		for _, one := range rules {
			if one.Table == hoststate.Table {
				have = append(have, observedRule(one).Rule)
			}
		}
		if len(have) != len(want) || slices.ContainsFunc(want, func(r hoststate.Rule) bool { return !slices.Contains(have, r) }) {
			t.Errorf("there are %v, want %v", have, want)
		}
	}
}

func TestPathMTU(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	for i := range want.Rules {
		want.Rules[i].InLink, want.Rules[i].Protocol, want.Rules[i].To = "", "", prefix(pods)
	}
	want.Rules = want.Rules[:1]
	h.settled(want)
	for to, expected := range map[string]int{"10.200.1.1": 1300, "10.201.1.1": fabricMTU, "10.200.9.7": 1300, "127.0.0.1": 65536} {
		mtu, link, err := PathMTU(addr(to))
		if err != nil || mtu != expected {
			t.Errorf("to %s: MTU %d by %s, %v; want %d", to, mtu, link, err, expected)
		}
	}
	if _, _, err := PathMTU(addr("203.0.113.1")); err == nil {
		t.Error("an address without a route has a path")
	}
}

// The cost of an idle host does not depend on the routes of other programs, because the kernel filters ours.
func TestForeignRoutesCostNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	h.settled(want)
	allocations := func() (count, perApply float64) {
		const rounds = 50
		var before, after unix.Rusage
		fatal(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
		count = testing.AllocsPerRun(rounds, func() {
			if changes := h.apply(want); len(changes) > 0 {
				t.Errorf("changed %v", changes)
			}
		})
		fatal(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
		spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		return count, float64(spent) / (rounds + 1) / 1e6
	}
	few, fewTime := allocations()
	out, err := netlink.LinkByName("eth0")
	fatal(t, err)
	for i := range 1000 {
		fatal(t, netlink.RouteAdd(&netlink.Route{
			LinkIndex: out.Attrs().Index, Protocol: unix.RTPROT_BGP,
			Dst: kernel.IPNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32)),
		}))
	}
	many, manyTime := allocations()
	t.Logf("an idle Apply takes %.2f ms of CPU and %.0f allocations; with 1000 routes of others %.2f ms and %.0f", fewTime, few, manyTime, many)
	if many > few+500 {
		t.Errorf("%.0f allocations, with 1000 routes of others %.0f", few, many)
	}

	// They are listed where they matter.
	taken := want.Routes[0]
	taken.To = prefix("172.16.0.7/32")
	taken.Table = hoststate.MainTable
	want.Routes = append(slices.Clone(want.Routes), taken)
	if _, err := h.Apply(t.Context(), want); err == nil || !strings.Contains(err.Error(), "another program has a route") {
		t.Errorf("a route that another program has: %v", err)
	}
}

// Unplanned routes inside the networks to keep stay; all other unplanned routes are deleted.
func TestKeep(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	kept, other := want.Routes[0], want.Routes[0]
	kept.To, other.To = prefix("10.99.0.7/32"), prefix("10.98.0.7/32")
	whole := other
	whole.To = prefix("10.99.0.0/16")
	full := want
	full.Routes = append(slices.Clone(want.Routes), kept, other, whole)
	h.settled(full)
	want.Keep = []netip.Prefix{prefix("10.99.0.0/16")}
	if changes := h.settled(want); len(changes) != 2 || strings.Contains(strings.Join(changes, ""), "10.99.0.7") {
		t.Errorf("changed %v", changes)
	}
	want.Keep = nil
	if changes := h.settled(want); len(changes) != 1 || !strings.Contains(changes[0], "delete route 10.99.0.7/32") {
		t.Errorf("changed %v", changes)
	}
}
