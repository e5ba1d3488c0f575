// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// openRetry is the pause between two attempts to open the socket.
const openRetry = time.Second

// ready opens the socket for the aim, and replaces one on which no reply arrives any more. It returns when to call it again.
func (p *Prober) ready(now time.Time) time.Time {
	if len(p.aim.Targets) == 0 && !p.aim.Local.IsValid() {
		p.closeSocket()
		return time.Time{}
	}
	if p.conn != nil && p.local == p.aim.Local && !p.unanswered(now) {
		if p.local.IsValid() {
			return time.Time{}
		}
		return now.Add(reopenAfter)
	}
	if p.conn == nil && now.Sub(p.opened) < openRetry && p.local == p.aim.Local {
		return p.opened.Add(openRetry)
	}
	p.closeSocket()
	p.local, p.opened = p.aim.Local, now
	if p.conn, p.problem = p.open(); p.problem != nil {
		return now.Add(openRetry)
	}
	go p.read(p.conn)
	return now.Add(reopenAfter)
}

// unanswered reports whether nothing came back on a socket whose port the kernel chose.
func (p *Prober) unanswered(now time.Time) bool {
	if p.local.IsValid() || len(p.monitors) == 0 || now.Sub(p.opened) < reopenAfter {
		return false
	}
	for _, one := range p.monitors {
		if now.Sub(one.last) < reopenAfter {
			return false
		}
	}
	return true
}

func (p *Prober) open() (*net.UDPConn, error) {
	bind := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if p.aim.Local.IsValid() {
		bind = netip.AddrPortFrom(p.aim.Local, p.options.Port)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = adjust(int(fd)) }), err)
	}}
	conn, err := config.ListenPacket(context.Background(), "udp4", bind.String())
	if err != nil {
		return nil, fmt.Errorf("open the socket for probes at %s: %w", bind, err)
	}
	return conn.(*net.UDPConn), nil
}

func adjust(fd int) error {
	// The plan that adds the address may be applied after the socket is opened.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1); err != nil {
		return err
	}
	// Never fragment, and ignore what the kernel knows of the path MTU: path.go measures it.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_PROBE); err != nil {
		return err
	}
	// Bulk traffic in our own queues must not make a lane look as if it failed.
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_PRIORITY, 6)
}

func (p *Prober) closeSocket() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing is buffered
		p.conn = nil
	}
}

// read handles packets until the socket is closed.
func (p *Prober) read(conn *net.UDPConn) {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.broken(conn, err)
			return
		}
		p.handle(conn, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buffer[:n])
	}
}

func (p *Prober) broken(conn *net.UDPConn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == conn {
		p.closeSocket()
		p.problem = fmt.Errorf("read probes: %w", err)
	}
}

func (p *Prober) handle(conn *net.UDPConn, from netip.AddrPort, packet []byte) {
	h, ok := parse(packet)
	if !ok {
		return
	}
	now := time.Now()
	switch h.kind {
	case echoRequest:
		if p.answers(from.Addr(), now) {
			packet[5] = byte(echoReply)
			_, _ = conn.WriteToUDPAddrPort(packet, from) // the sender notices a lost answer
		}
	case echoReply:
		if h.sender == p.sender && p.receive(now, from, h, len(packet)+headers) {
			p.options.Changed()
		}
	case observations:
		p.mu.Lock()
		name, known := p.aim.Nodes[from.Addr()]
		p.mu.Unlock()
		node, all, ok := parseReport(packet[headerSize:])
		if known && ok && node == name && p.options.Received != nil {
			p.options.Received(NodeReport{Node: node, Observations: all, sender: h.sender, sequence: h.sequence})
		}
	}
}

func (p *Prober) answers(source netip.Addr, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aim.Local.IsValid() && p.echo.allow(source, now)
}

// receive records a reply and reports whether a result changed.
func (p *Prober) receive(now time.Time, from netip.AddrPort, h header, size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byAddr[from.Addr()]
	if one == nil || from.Port() != p.options.Port || int(h.lane) != one.Lane {
		return false
	}
	if h.sequence&pathSequence == 0 {
		return one.monitor.receive(now, h.sequence)
	}
	before := one.path.mtu
	one.path.receive(now, size)
	if one.path.phase == searching {
		select { // send the next size at once
		case p.kick <- struct{}{}:
		default:
		}
	}
	return one.path.mtu != before
}
