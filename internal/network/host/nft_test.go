// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/hoststate"
)

// TestVerbs puts the host under test between a client and a server.
func TestVerbs(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	client, server := newNamespace(t), newNamespace(t)
	current, err := netns.Get()
	fatal(t, err)
	connect(t, current, client, "c0", "eth0", "10.1.0.1/24", "10.1.0.2/24")
	connect(t, current, server, "s0", "eth0", "10.2.0.1/24", "10.2.0.2/24")
	fatal(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	for ns, gateway := range map[netns.NsHandle]string{client: "10.1.0.1", server: "10.2.0.1"} {
		inside(t, ns, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}) })
	}
	chain := func(hook hoststate.Hook, priority int, nat bool, rules ...hoststate.PacketRule) hoststate.Chain {
		return hoststate.Chain{Name: fmt.Sprintf("%s_%t", hook, nat), Hook: hook, Priority: priority, NAT: nat, Rules: rules}
	}
	set := func(chains ...hoststate.Chain) { t.Helper(); h.settled(hoststate.State{Chains: chains}) }
	reaches := func(from, to netns.NsHandle, address, seen string) {
		t.Helper()
		transfer(t, from, to, address, seen, 1000)
	}
	// blocked checks that the rules block an address: without them it answers.
	blocked := func(from, to netns.NsHandle, address string, chains ...hoststate.Chain) {
		t.Helper()
		set(chains...)
		if answered(t, from, to, address, silence) {
			t.Errorf("%s is reached", address)
		}
		set()
		if !answered(t, from, to, address, hang) {
			t.Errorf("%s is not reached without rules", address)
		}
	}

	t.Run("drop and accept", func(t *testing.T) {
		drop := hoststate.PacketRule{In: "c0", Protocol: "udp", Port: 7000, Verb: hoststate.Drop}
		blocked(client, server, "10.2.0.2", chain(hoststate.Forward, 0, false, drop))
		set(chain(hoststate.Forward, 0, false, hoststate.PacketRule{To: prefix("10.2.0.0/31"), Verb: hoststate.Drop},
			hoststate.PacketRule{To: prefix("10.2.0.2/31"), Verb: hoststate.Accept}, drop))
		if !answered(t, client, server, "10.2.0.2", hang) {
			t.Error("a packet is dropped after it was accepted")
		}
	})
	t.Run("from not", func(t *testing.T) {
		drop := hoststate.PacketRule{Protocol: "udp", Port: 7000, FromNot: []netip.Addr{addr("10.1.0.9"), addr("10.1.0.8")}, Verb: hoststate.Drop}
		blocked(client, current, "10.1.0.1", chain(hoststate.Input, 0, false, drop))
		drop.FromNot = append(drop.FromNot, addr("10.1.0.2"))
		set(chain(hoststate.Input, 0, false, drop))
		if !answered(t, client, current, "10.1.0.1", hang) {
			t.Error("an allowed packet is dropped")
		}
		drop.FromNot = []netip.Addr{}
		blocked(client, current, "10.1.0.1", chain(hoststate.Input, 0, false, drop))
	})
	t.Run("to not", func(t *testing.T) {
		drop := hoststate.PacketRule{
			In: "c0", Protocol: "udp", Port: 7000, To: prefix("10.2.0.0/24"), ToNot: []netip.Addr{addr("10.2.0.9"), addr("10.2.0.8")},
			Verb: hoststate.Drop,
		}
		blocked(client, server, "10.2.0.2", chain(hoststate.Prerouting, -300, false, drop))
		drop.ToNot = append(drop.ToNot, addr("10.2.0.2"))
		set(chain(hoststate.Prerouting, -300, false, drop))
		if !answered(t, client, server, "10.2.0.2", hang) {
			t.Error("an allowed packet is dropped")
		}
		drop.ToNot = []netip.Addr{}
		blocked(client, server, "10.2.0.2", chain(hoststate.Prerouting, -300, false, drop))
	})
	t.Run("mapped and masqueraded", func(t *testing.T) {
		mapping := chain(hoststate.Prerouting, -100, true, hoststate.PacketRule{
			In: "c0", To: prefix("10.9.9.9/32"), Verb: hoststate.MapDestination, Address: addr("10.2.0.2"),
		})
		set(mapping)
		reaches(client, server, "10.9.9.9", "10.1.0.2")
		set(mapping, chain(hoststate.Postrouting, 100, true, hoststate.PacketRule{Mapped: true, Verb: hoststate.Masquerade}))
		reaches(client, server, "10.9.9.9", "10.2.0.1")
		reaches(client, server, "10.2.0.2", "10.1.0.2")
	})
	t.Run("new", func(t *testing.T) {
		drop := chain(hoststate.Input, 0, false, hoststate.PacketRule{In: "c0", New: true, Verb: hoststate.Drop})
		blocked(client, current, "10.1.0.1", drop)
		set(drop, chain(hoststate.Prerouting, -100, true, hoststate.PacketRule{To: prefix("10.9.9.9/32"), Verb: hoststate.MapDestination, Address: addr("10.1.0.1")}))
		if !answered(t, current, client, "10.1.0.2", hang) {
			t.Error("an answer is dropped as if it was new")
		}
		reaches(client, current, "10.9.9.9", "10.1.0.2")
	})
	t.Run("not tracked", func(t *testing.T) {
		// What is not tracked cannot be mapped.
		mapping := chain(hoststate.Prerouting, -100, true, hoststate.PacketRule{To: prefix("10.9.9.9/32"), Verb: hoststate.MapDestination, Address: addr("10.2.0.2")})
		set(mapping)
		if !answered(t, client, server, "10.9.9.9", hang) {
			t.Error("a mapping does not map")
		}
		set(mapping, chain(hoststate.Prerouting, -300, false, hoststate.PacketRule{Protocol: "udp", Port: 7000, Verb: hoststate.NoTrack}))
		if answered(t, client, server, "10.9.9.9", silence) {
			t.Error("an untracked packet is mapped")
		}
	})
	t.Run("clamp", func(t *testing.T) {
		for _, c := range []struct{ clamp, want int }{{0, 1448}, {1000, 988}, {2000, 1448}} { // less 12 for timestamps
			var chains []hoststate.Chain
			if c.clamp > 0 {
				chains = []hoststate.Chain{chain(hoststate.Forward, -150, false, hoststate.PacketRule{Verb: hoststate.ClampMSS, MSS: uint16(c.clamp)})}
			}
			set(chains...)
			if got := segment(t, client, server, "10.2.0.2"); got != c.want {
				t.Errorf("clamped to %d, the client sends segments of %d, want %d", c.clamp, got, c.want)
			}
		}
	})
}

const (
	// silence is how long nothing must come. A slow machine can only make that weaker, so each check of it goes with one that something comes without the rule.
	silence = 300 * time.Millisecond
	// hang guards what must come.
	hang = 30 * time.Second
)

// answered sends a datagram to a server, and reports whether it came back in time.
func answered(t *testing.T, from, to netns.NsHandle, address string, within time.Duration) bool {
	t.Helper()
	var server net.PacketConn
	inside(t, to, func() (err error) { server, err = net.ListenPacket("udp4", ":7000"); return err })
	go func() {
		buffer := make([]byte, 10)
		for {
			n, sender, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buffer[:n], sender)
		}
	}()
	defer server.Close()
	client := dialUDP(t, from, address)
	defer client.Close()
	_, err := client.Write([]byte{1})
	fatal(t, err)
	fatal(t, client.SetDeadline(time.Now().Add(within)))
	_, err = client.Read(make([]byte, 10))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	return err == nil
}

// segment returns the length of the segments that a client sends.
func segment(t *testing.T, from, to netns.NsHandle, address string) (size int) {
	t.Helper()
	var listener net.Listener
	inside(t, to, func() (err error) { listener, err = net.Listen("tcp4", ":7000"); return err })
	defer listener.Close()
	var conn net.Conn
	inside(t, from, func() (err error) { conn, err = net.DialTimeout("tcp4", address+":7000", 5*time.Second); return err })
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	fatal(t, err)
	fatal(t, raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) }))
	fatal(t, err)
	return size
}

// TestManyRules writes the table of some hundred peers and thousands of nodes in one transaction.
func TestManyRules(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	var rules []hoststate.PacketRule
	for i := range 6000 {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), 0}), 24)
		rules = append(rules, hoststate.PacketRule{
			In: hoststate.TunnelLink, From: network, Inner: network, Verb: hoststate.SwapInnerSource, Network: prefix("10.0.0.0/24"),
		})
	}
	var senders []netip.Addr
	for one := addr("10.250.0.1"); len(senders) < 5000; one = one.Next() {
		senders = append(senders, one)
	}
	rules = append(rules, hoststate.PacketRule{FromNot: senders, Verb: hoststate.Drop})
	start := time.Now()
	want := hoststate.State{Chains: []hoststate.Chain{{Name: "many", Hook: hoststate.Prerouting, Rules: rules}}}
	h.apply(want)
	t.Logf("%d rules in %s", len(rules), time.Since(start))
	start = time.Now()
	if again := h.apply(want); len(again) > 0 {
		t.Errorf("applying the same again changed %v", again)
	}
	t.Logf("read again in %s", time.Since(start))
}
