// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"liqo.io/liqo/internal/network/host/filter"
	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/plan"
)

// masquerade does what network plugins do: packets of pods to other networks leave with the address of their node.
func masquerade(t *testing.T, node netns.NsHandle, rule hoststate.PacketRule) {
	t.Helper()
	inside(t, node, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Name: "plugin", Family: nftables.TableFamilyIPv4})
		chain := conn.AddChain(&nftables.Chain{
			Name: "masquerade", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		w := &filter.RuleWriter{Conn: conn, Table: table}
		if err := w.Rule(rule); err != nil {
			return err
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: w.Exprs})
		return conn.Flush()
	})
}

// policy replaces what a network plugin filters between pods.
func policy(t *testing.T, node netns.NsHandle, rules ...hoststate.PacketRule) {
	t.Helper()
	inside(t, node, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Name: "policies", Family: nftables.TableFamilyIPv4})
		conn.DelTable(table)
		conn.AddTable(table)
		chain := conn.AddChain(&nftables.Chain{
			Name: "pods", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		})
		for _, rule := range rules {
			w := &filter.RuleWriter{Conn: conn, Table: table}
			if err := w.Rule(rule); err != nil {
				return err
			}
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: w.Exprs})
		}
		return conn.Flush()
	})
}

// village is a provider of two nodes, which are routers for their pods, with strict checks of sources.
type village struct {
	nodes    map[string]*remote
	a, b, c  netns.NsHandle // pods, a and b on n1
	snapshot plan.Snapshot
}

func newVillage(t *testing.T) *village {
	t.Helper()
	v := &village{nodes: map[string]*remote{"n1": newRemote(t, "n1"), "n2": newRemote(t, "n2")}, a: newNamespace(t), b: newNamespace(t), c: newNamespace(t)}
	n1, n2 := v.nodes["n1"].ns, v.nodes["n2"].ns
	connect(t, n1, n2, "lan", "lan", "192.0.2.1/24", "192.0.2.2/24")
	for _, pod := range []struct {
		node, ns               netns.NsHandle
		link, router, own, via string
	}{
		{n1, v.a, "pod0", "10.200.1.1/32", "10.200.1.5/32", "10.200.1.1"},
		{n1, v.b, "pod1", "10.200.1.1/32", "10.200.1.6/32", "10.200.1.1"},
		{n2, v.c, "pod0", "10.200.2.1/32", "10.200.2.7/32", "10.200.2.1"},
	} {
		connect(t, pod.node, pod.ns, pod.link, "eth0", pod.router, pod.own)
		inside(t, pod.node, func() error {
			link, err := netlink.LinkByName(pod.link)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: kernel.IPNet(prefix(pod.own))})
		})
		inside(t, pod.ns, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(pod.via), Flags: int(netlink.FLAG_ONLINK)})
		})
	}
	for node, other := range map[netns.NsHandle][2]string{n1: {"10.200.2.0/24", "192.0.2.2"}, n2: {"10.200.1.0/24", "192.0.2.1"}} {
		inside(t, node, func() error {
			return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0),
				netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(other[1]), Dst: kernel.IPNet(prefix(other[0]))}),
				netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(other[1])}))
		})
		masquerade(t, node, hoststate.PacketRule{
			From: prefix("10.200.0.0/16"), ToNot: []netip.Addr{addr("10.200.1.5"), addr("10.200.1.6"), addr("10.200.2.7")},
			Verb: hoststate.Masquerade,
		})
	}
	v.snapshot = plan.Snapshot{
		Local: plan.Cluster{PodCIDRs: []netip.Prefix{prefix("10.200.0.0/16")}, External: prefix("242.0.0.0/16")},
		Nodes: []plan.Node{
			{Name: "n1", Address: addr("192.0.2.1"), PodCIDRs: []netip.Prefix{prefix("10.200.1.0/24")}},
			{Name: "n2", Address: addr("192.0.2.2"), PodCIDRs: []netip.Prefix{prefix("10.200.2.0/24")}},
		},
		Peers: []plan.Peer{{
			ClusterID: "rome-id", Name: "rome", RemotePods: prefix("242.1.0.0/16"), RemoteExternal: prefix("242.2.0.0/16"),
			Shown: true, Pods: plan.Swap{From: prefix("10.200.0.0/16"), To: prefix("242.129.0.0/16")},
			External: plan.Swap{From: prefix("242.0.0.0/16"), To: prefix("242.130.0.0/16")},
		}},
		Self: plan.Self{PodMTU: 1500},
	}
	return v
}

// apply brings both nodes to their plans; without peers, to none.
func (v *village) apply(t *testing.T, peers ...plan.Peer) {
	t.Helper()
	for name, node := range v.nodes {
		snapshot := v.snapshot
		snapshot.Peers, snapshot.Self.Node = peers, name
		state, err := plan.ForNode(snapshot)
		fatal(t, err)
		node.apply(t, hostRequest{Want: state})
		if again := node.apply(t, hostRequest{Want: state}).Changes; len(again) > 0 {
			t.Errorf("%s: applying the same again changed %v", name, again)
		}
	}
}

// TestShown: on a real kernel, pods reach each other and themselves at the addresses that a peer shows for them, as long as the peering exists;
// connections that exist outlive it.
func TestShown(t *testing.T) {
	if !isolated(t) {
		return
	}
	v := newVillage(t)
	v.apply(t, v.snapshot.Peers...)
	for _, way := range []struct {
		what          string
		from, to      netns.NsHandle
		address, seen string
	}{
		{"on another node", v.a, v.c, "242.129.2.7", "10.200.1.5"},
		{"back", v.c, v.a, "242.129.1.5", "10.200.2.7"},
		{"on the same node", v.a, v.b, "242.129.1.6", "242.129.1.5"},
		{"itself", v.a, v.a, "242.129.1.5", "242.129.1.5"},
		{"at its own address, as before", v.a, v.c, "10.200.2.7", "10.200.1.5"},
	} {
		t.Run(way.what, func(t *testing.T) {
			transfer(t, way.from, way.to, way.address, way.seen, 1<<20)
			datagram(t, way.from, way.to, way.address, way.seen, 1000)
			refused(t, way.from, way.address)
		})
	}
	t.Run("policies", func(t *testing.T) {
		// As network plugins keep a pod from another one: by the addresses that both have.
		for name, way := range map[string]struct {
			node           netns.NsHandle
			to, dial, seen string
		}{
			"same node":    {v.nodes["n1"].ns, "10.200.1.6/32", "242.129.1.6:7000", "10.200.1.6:7000"},
			"another node": {v.nodes["n2"].ns, "10.200.2.7/32", "242.129.2.7:7000", "10.200.2.7:7000"},
		} {
			policy(t, way.node, hoststate.PacketRule{From: prefix("10.200.1.5/32"), To: prefix(way.to), Verb: hoststate.Drop})
			for _, address := range []string{way.dial, way.seen} {
				inside(t, v.a, func() error {
					conn, err := net.DialTimeout("tcp4", address, 300*time.Millisecond)
					var timeout net.Error
					if err == nil {
						conn.Close()
					}
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Errorf("%s: %s is not kept from the pod: %v", name, address, err)
					}
					return nil
				})
			}
			policy(t, way.node)
		}
	})
	t.Run("marks of other programs", func(t *testing.T) {
		inside(t, v.nodes["n1"].ns, func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			table := conn.AddTable(&nftables.Table{Name: "marks", Family: nftables.TableFamilyIPv4})
			chain := conn.AddChain(&nftables.Chain{
				Name: "all", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
			})
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(hoststate.ShownMark &^ 4)},
				&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
			}})
			return conn.Flush()
		})
		transfer(t, v.a, v.b, "10.200.1.6", "10.200.1.5", 1000)
	})
	t.Run("removed", func(t *testing.T) {
		var listener net.Listener
		inside(t, v.c, func() (err error) { listener, err = net.Listen("tcp4", ":7001"); return err })
		defer listener.Close()
		dial := func() (conn net.Conn, err error) {
			inside(t, v.a, func() error {
				conn, err = net.DialTimeout("tcp4", "242.129.2.7:7001", 2*time.Second)
				return nil
			})
			return conn, err
		}
		client, err := dial()
		fatal(t, err)
		defer client.Close()
		server, err := listener.Accept()
		fatal(t, err)
		defer server.Close()
		v.apply(t)
		for _, end := range []net.Conn{client, server} {
			fatal(t, end.SetDeadline(time.Now().Add(10*time.Second)))
		}
		_, err = client.Write([]byte("still"))
		fatal(t, err)
		buffer := make([]byte, 5)
		_, err = server.Read(buffer)
		fatal(t, err)
		_, err = server.Write([]byte("there"))
		fatal(t, err)
		if _, err = client.Read(buffer); err != nil || string(buffer) != "there" {
			t.Errorf("a connection did not outlive the peering: %q, %v", buffer, err)
		}
		if conn, err := dial(); err == nil {
			conn.Close()
			t.Error("the address leads to the pod without a peering")
		}
	})
}
