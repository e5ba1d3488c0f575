// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/fault"
)

// TestAllow closes the link but for one UDP port and one TCP port that rome may open at milan, with and without the emulator in
// the way. Nothing but flows to them passes, a connection to another port is cut, and the counters agree.
func TestAllow(t *testing.T) {
	const silence = 300 * ms // how long a packet that must not arrive is waited for
	for name, base := range map[string]fault.State{
		"plain":    {},
		"emulated": fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 5 * ms}),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.startEmulator()
			rome, open, other := l.rome.udp(romeAddress), l.milan.udp(milanAddress), l.milan.udp(milanAddress)
			number := uint64(0)
			expect := func(what string, from, to endpoint, arrives bool) {
				t.Helper()
				number++
				from.send(to, number)
				timeout := silence
				if arrives {
					timeout = 30 * time.Second
				}
				if got, ok := to.receive(timeout); ok != arrives || ok && got != number {
					t.Errorf("%s: packet %d arrived: %v (%d), want %v", what, number, ok, got, arrives)
				}
			}
			l.apply(base)
			cutNear, cutFar := tcp(l.rome, l.milan, milanAddress)
			near, far := tcp(l.rome, l.milan, milanAddress)
			ports := []fault.Port{portOf(open.LocalAddr()), portOf(far.LocalAddr())}

			closed := base.Allow("rome", "milan", ports, true)
			l.apply(closed)
			expect("request to the open port", rome, open, true)
			expect("reply from the open port", open, rome, true)
			expect("to another port", rome, other, false)
			expect("from another port", other, rome, false)
			carries(t, "established connection to the open port", near, far, true)
			carries(t, "its other direction", far, near, true)
			carries(t, "established connection to another port", cutNear, cutFar, false)
			carries(t, "its other direction", cutFar, cutNear, false)
			if l.pings(l.rome, milanAddress) || l.pings(l.milan, romeAddress) {
				t.Error("echo requests pass, although ICMP is not allowed")
			}
			// From the open port, milan must not open a connection: a reply is never a lone SYN.
			if err := dialFrom(l.milan, far.LocalAddr().(*net.TCPAddr), romeAddress); !os.IsTimeout(err) {
				t.Errorf("milan opens a connection from the open port: got error %v, want a timeout", err)
			}
			l.checkCounters(2)

			l.apply(closed.Allow("rome", "milan", []fault.Port{{Protocol: fault.ICMP}}, true))
			if !l.pings(l.rome, milanAddress) || l.pings(l.milan, romeAddress) {
				t.Error("rome, and only rome, may ping: got another result")
			}
			expect("to a port that is allowed no more", rome, open, false)

			l.apply(closed.Heal("rome", "milan"))
			expect("after heal", rome, other, true)
			carries(t, "the cut connection, after heal", cutNear, cutFar, true)
		})
	}
}

func portOf(address net.Addr) fault.Port {
	port := fault.Port{Protocol: fault.TCP}
	switch a := address.(type) {
	case *net.TCPAddr:
		port.First = uint16(a.Port)
	case *net.UDPAddr:
		port.Protocol, port.First = fault.UDP, uint16(a.Port)
	}
	port.Last = port.First
	return port
}

// carries writes to one end of a connection and wants the bytes at the other end, or none in time.
func carries(t *testing.T, what string, from, to net.Conn, arrives bool) {
	t.Helper()
	timeout := 300 * ms
	if arrives {
		timeout = 30 * time.Second
	}
	if _, err := from.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Read(make([]byte, 64)); (err == nil) != arrives {
		t.Errorf("%s: received %d bytes, error %v; want bytes: %v", what, n, err, arrives)
	}
}

// dialFrom opens a connection from a port that may be in use, to any port.
func dialFrom(from namespace, local *net.TCPAddr, to net.IP) (err error) {
	from.in(func() error {
		dialer := net.Dialer{Timeout: 500 * ms, LocalAddr: local, Control: reusePort}
		conn, failed := dialer.Dial("tcp4", net.JoinHostPort(to.String(), "9"))
		if err = failed; err == nil {
			_ = conn.Close()
		}
		return nil
	})
	return err
}

// checkCounters wants packets through and dropped in both directions, and nothing through but what is allowed.
func (l *lab) checkCounters(ports int) {
	l.t.Helper()
	counters, err := fault.ReadCounters([]byte(l.router.run("", "nft", "--json", "list", "ruleset")), "milan", "rome")
	if err != nil {
		l.t.Fatal(err)
	}
	if len(counters) != 2*(ports+2) {
		l.t.Errorf("got %d counters, want one for each port, for anything else and for what was dropped, in each direction", len(counters))
	}
	for _, c := range counters {
		if (c.Packets > 0) != (c.What != "anything else") || (c.Bytes > 0) != (c.Packets > 0) {
			l.t.Errorf("unexpected count: %+v", c)
		}
	}
}

// pings reports whether one of two echo requests is answered.
func (l *lab) pings(from namespace, to net.IP) bool {
	l.t.Helper()
	conn, reply := from.icmp(), make([]byte, 1500)
	defer func() { _ = conn.Close() }()
	// Type 8, code 0, checksum (the kernel fills identifier and checksum of a ping socket), sequence 1.
	for range 2 {
		if _, err := conn.WriteTo([]byte{8, 0, 0, 0, 0, 0, 0, 1}, &net.UDPAddr{IP: to}); err != nil {
			l.t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(300 * ms)); err != nil {
			l.t.Fatal(err)
		}
		if n, _, err := conn.ReadFrom(reply); err == nil && n > 0 && reply[0] == 0 {
			return true
		}
	}
	return false
}

func reusePort(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(err, set)
}

// icmp opens a ping socket, for which the namespace must let every group.
func (n namespace) icmp() net.PacketConn {
	n.t.Helper()
	var conn net.PacketConn
	n.in(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o644); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "icmp")
		conn, err = net.FilePacketConn(file)
		return errors.Join(err, file.Close())
	})
	return conn
}
