// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/fault"
	"liqo.io/liqo/playground/internal/nat"
	"liqo.io/liqo/playground/internal/netem"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// natLab is three nodes at the router between clusters, of which rome and nice will be behind a NAT router. None of its
// namespaces is one of a playground.
type natLab struct {
	t        *testing.T
	topology topology.Topology
	plan     nat.Plan
}

func newNATLab(t *testing.T) *natLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it makes network namespaces, for which it must be root")
	}
	l := &natLab{t: t}
	s := scenario.Scenario{Network: netip.MustParsePrefix("10.210.0.0/16")}
	for _, name := range []string{"rome", "milan", "nice"} {
		s.Clusters = append(s.Clusters, scenario.Cluster{Name: name, ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16")})
	}
	var err error
	if l.topology, err = topology.New(s); err != nil {
		t.Fatal(err)
	}
	l.plan = nat.New(nat.Router{Number: 1, Clusters: []string{"rome", "nice"}, Address: netip.MustParseAddr("203.0.113.1")}, l.topology)
	l.plan.Router, l.plan.NetNS = l.at("wan"), l.at("nat")
	if err := prepareDir(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remove(l.plan.NetNS); _ = removeDir() })
	l.namespace("wan", routerSettings)
	for _, c := range l.topology.Clusters {
		l.namespace(c.Name, nodeSettings)
		l.run(
			"wan", "ip link add %s type veth peer name eth0 netns %s; ip addr add %s/24 dev %[1]s; ip link set %[1]s up", c.Bridge,
			path.Base(l.at(c.Name)), c.Gateway,
		)
		l.run(c.Name, "ip addr add %s/24 dev eth0; ip link set eth0 up; ip route add default via %s", c.ControlPlane.Address, c.Gateway)
	}
	return l
}

func (l *natLab) at(name string) string {
	return path.Join(topology.NetNSDir, topology.Prefix+"test-nat-"+name)
}

func (l *natLab) namespace(name string, settings map[string]string) {
	l.t.Helper()
	made, err := create(l.at(name), settings)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = made.Close()
		if err := remove(l.at(name)); err != nil {
			l.t.Error(err)
		}
	})
}

func (l *natLab) run(name, line string, args ...any) string {
	l.t.Helper()
	out, err := Output(l.at(name), "", "/bin/sh", "-ec", fmt.Sprintf(line, args...))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(out)
}

// state is what AddNAT must not leave behind in the router.
func (l *natLab) state() string {
	return l.run("wan", "ip -o link | cut -d: -f2; ip rule; ip -4 route show table all; nft list ruleset")
}

// socket is a UDP socket of a node at port 5000, which a NAT must not keep.
func (l *natLab) socket(name string) *net.UDPConn { return l.socketAt(name, 5000) }

func (l *natLab) socketAt(name string, port int) *net.UDPConn {
	l.t.Helper()
	address := l.udp(name)
	address.Port = port
	var conn *net.UDPConn
	if err := Inside(l.at(name), func() (err error) {
		conn, err = net.ListenUDP("udp4", address)
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (l *natLab) udp(name string) *net.UDPAddr {
	c, _ := l.topology.Cluster(name)
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.ControlPlane.Address, 5000))
}

// pass sends a packet and returns the source that its receiver sees, or nil if it does not arrive in time.
func (l *natLab) pass(from, to *net.UDPConn, address *net.UDPAddr) *net.UDPAddr {
	l.t.Helper()
	text := fmt.Sprint(time.Now().UnixNano())
	_, _ = from.WriteToUDP([]byte(text), address) // an earlier ICMP error may be reported here
	deadline := time.Now().Add(400 * time.Millisecond)
	for buffer := make([]byte, 100); ; {
		_ = to.SetReadDeadline(deadline)
		n, source, err := to.ReadFromUDP(buffer)
		if os.IsTimeout(err) {
			return nil
		}
		if err == nil && string(buffer[:n]) == text {
			return source
		}
	}
}

// TestNAT: what goes out has the outside address and another port, what comes in is a reply or is dropped.
func TestNAT(t *testing.T) {
	if nat.Emulator != netem.Device {
		t.Errorf("the plan lets packets pass by %s, and the emulator's device is %s", nat.Emulator, netem.Device)
	}
	l := newNATLab(t)
	before := l.state()
	for range 2 { // the second one replaces the first
		if err := AddNAT(l.plan); err != nil {
			t.Fatal(err)
		}
	}
	rome, nice, milan := l.socket("rome"), l.socket("nice"), l.socket("milan")
	mapped := l.pass(rome, milan, l.udp("milan"))
	if mapped == nil || mapped.IP.String() != "203.0.113.1" || mapped.Port == 5000 {
		t.Fatalf("milan sees rome as %s, want 203.0.113.1 and another port than 5000", mapped)
	}
	if l.pass(milan, rome, mapped) == nil {
		t.Error("a reply does not arrive")
	}
	if shared := l.pass(nice, milan, l.udp("milan")); shared == nil || shared.IP.String() != "203.0.113.1" || shared.Port == mapped.Port {
		t.Errorf("milan sees nice as %s, want the address and not the port of rome, %s", shared, mapped)
	}
	if near := l.pass(rome, nice, l.udp("nice")); near == nil || near.String() != l.udp("rome").String() {
		t.Errorf("nice, behind the same router, sees rome as %s", near)
	}
	other := l.socketAt("milan", 5001)
	if l.pass(other, rome, l.udp("rome")) != nil || l.pass(other, rome, mapped) != nil || l.pass(milan, rome, l.udp("rome")) != nil {
		t.Error("an unsolicited packet arrives, to the address of rome or to the outside address")
	}

	// A rebind: the old mapping is gone, and the flow gets another one.
	if err := RebindNAT(l.plan); err != nil {
		t.Fatal(err)
	}
	if l.pass(milan, rome, mapped) != nil {
		t.Error("after a rebind, the old mapping still works")
	}
	again := l.pass(rome, milan, l.udp("milan"))
	if again == nil || again.Port == mapped.Port || l.pass(milan, rome, again) == nil {
		t.Errorf("after a rebind, milan sees rome as %s, before as %s; want another port, and replies", again, mapped)
	}
	l.plan.Address = netip.MustParseAddr("203.0.113.9")
	l.plan.Translate = strings.ReplaceAll(l.plan.Translate, "203.0.113.1", "203.0.113.9")
	if err := RebindNAT(l.plan); err != nil {
		t.Fatal(err)
	}
	moved := l.pass(rome, milan, l.udp("milan"))
	if moved == nil || moved.IP.String() != "203.0.113.9" || l.pass(milan, rome, moved) == nil || strings.Contains(l.state(), "203.0.113.1 ") {
		t.Errorf("milan sees rome as %s, want 203.0.113.9, and replies; the router:\n%s", moved, l.state())
	}

	for range 2 {
		if err := RemoveNAT(l.plan); err != nil {
			t.Fatal(err)
		}
	}
	if after := l.state(); after != before {
		t.Errorf("after RemoveNAT:\n%s\nbefore:\n%s", after, before)
	}
	if direct := l.pass(rome, milan, l.udp("milan")); direct == nil || direct.String() != l.udp("rome").String() {
		t.Errorf("without the router, milan sees rome as %s", direct)
	}
}

// TestForwardNAT: a forwarded port is reached from outside and, by the outside address, from behind the same router.
func TestForwardNAT(t *testing.T) {
	l := newNATLab(t)
	if err := AddNAT(l.plan); err != nil {
		t.Fatal(err)
	}
	rome, nice, milan := l.socket("rome"), l.socket("nice"), l.socket("milan")
	open := &net.UDPAddr{IP: net.ParseIP("203.0.113.1"), Port: 7000}
	mapped := l.pass(rome, milan, l.udp("milan"))
	if l.pass(milan, rome, open) != nil || l.pass(nice, rome, open) != nil {
		t.Error("a port is open that is not forwarded")
	}
	l.plan.Translate = nat.New(nat.Router{
		Number: 1, Clusters: []string{"rome", "nice"}, Address: l.plan.Address,
		Forwards: []nat.Forward{{Protocol: "udp", Port: 7000, Cluster: "rome", To: l.udp("rome").AddrPort()}},
	}, l.topology).Translate
	if err := ForwardNAT(l.plan); err != nil {
		t.Fatal(err)
	}
	if l.pass(milan, rome, mapped) == nil {
		t.Error("a flow from before does not pass")
	}
	other, near := l.socketAt("milan", 5001), l.socketAt("nice", 5001) // the first ones have flows, which stay as they are
	if seen := l.pass(other, rome, open); seen == nil || seen.String() != other.LocalAddr().String() || l.pass(rome, other, seen) == nil {
		t.Errorf("rome sees a packet of milan to the forwarded port from %s, want milan's own address, and that replies arrive", seen)
	}
	if seen := l.pass(near, rome, open); seen == nil || !seen.IP.Equal(open.IP) || l.pass(rome, near, seen) == nil {
		t.Errorf("rome sees a packet of nice to the forwarded port from %s, want the outside address, and that replies arrive", seen)
	}
}

// TestFaultsBehindNAT: faults of the link between a cluster behind a NAT router and one that is not.
func TestFaultsBehindNAT(t *testing.T) {
	l := newNATLab(t)
	if err := AddNAT(l.plan); err != nil {
		t.Fatal(err)
	}
	sites := fault.Topology{}
	for _, c := range l.topology.Clusters {
		sites[c.Name] = fault.Site{Prefix: c.NodeCIDR, Interface: c.Bridge, Behind: map[bool]string{true: l.plan.Inside.Port}[c.Name != "milan"]}
	}
	socket := filepath.Join(t.TempDir(), "socket")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- Inside(l.plan.Router, func() error { return netem.Run(ctx, socket) })
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	apply := func(state fault.State) {
		t.Helper()
		plan, err := fault.NewPlan(state, sites)
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(l.plan.Router, plan.NFT, "nft", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		for try := 0; ; try++ { // the emulator may be starting
			if _, err = netem.Apply(context.Background(), socket, plan.Emulation); err == nil {
				return
			}
			if try == 500 {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	rome, nice, milan := l.socket("rome"), l.socket("nice"), l.socket("milan")
	apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 50 * time.Millisecond}))
	start := time.Now()
	mapped := l.pass(rome, milan, l.udp("milan"))
	if mapped == nil || mapped.IP.String() != "203.0.113.1" || l.pass(milan, rome, mapped) == nil || time.Since(start) < 100*time.Millisecond {
		t.Errorf("milan sees rome as %s, and the round trip takes %s, want 100 ms at least", mapped, time.Since(start))
	}
	for name, delayed := range map[string]fault.State{
		"plain": {}, "emulated": fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 5 * time.Millisecond}),
	} {
		apply(delayed.Allow("rome", "milan", []fault.Port{{Protocol: fault.UDP, First: 5000, Last: 5000}}, true))
		reply := l.pass(rome, milan, l.udp("milan"))
		if reply == nil || l.pass(milan, rome, reply) == nil || l.pass(rome, milan, &net.UDPAddr{IP: l.udp("milan").IP, Port: 5001}) != nil {
			t.Errorf("%s: want an answer from the open port and none from another", name)
		}
		apply(delayed.Partition("rome", "milan", true))
		if l.pass(rome, milan, l.udp("milan")) != nil {
			t.Errorf("%s: a packet passes the partition", name)
		}
		if l.pass(nice, milan, l.udp("milan")) == nil {
			t.Errorf("%s: nice, behind the same router, does not reach milan", name)
		}
		apply(delayed.Partition("milan", "rome", true))
		if reply = l.pass(rome, milan, l.udp("milan")); reply == nil || l.pass(milan, rome, reply) != nil {
			t.Errorf("%s: want requests to pass and replies to be dropped", name)
		}
	}
}
