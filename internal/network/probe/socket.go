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

// openAgain is how long after a failure, or the last time, the socket is opened again.
const openAgain = time.Second

// ready opens the socket that the aim wants, or again one on which nothing is heard any more. It says when to look again.
func (p *Prober) ready(now time.Time) time.Time {
	if len(p.aim.Targets) == 0 && !p.aim.Local.IsValid() {
		p.closeSocket()
		return time.Time{}
	}
	if p.conn != nil && p.local == p.aim.Local && !p.deaf(now) {
		if p.local.IsValid() {
			return time.Time{}
		}
		return now.Add(reopenAfter)
	}
	if p.conn == nil && now.Sub(p.opened) < openAgain && p.local == p.aim.Local {
		return p.opened.Add(openAgain)
	}
	p.closeSocket()
	p.local, p.opened = p.aim.Local, now
	if p.conn, p.problem = p.open(); p.problem != nil {
		return now.Add(openAgain)
	}
	go p.read(p.conn)
	return now.Add(reopenAfter)
}

// deaf tells whether nothing came back on a socket whose port the kernel chose.
func (p *Prober) deaf(now time.Time) bool {
	if p.local.IsValid() || len(p.legs) == 0 || now.Sub(p.opened) < reopenAfter {
		return false
	}
	for _, one := range p.legs {
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
	// The address comes with the plan, which may be later than the socket.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1); err != nil {
		return err
	}
	// Never fragment, and do not believe what the kernel knows of the path: that is to be found out.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_PROBE); err != nil {
		return err
	}
	// Bulk traffic of our own queues must not look like a lane that fails.
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_PRIORITY, 6)
}

func (p *Prober) closeSocket() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing is buffered
		p.conn = nil
	}
}

// read hears until the socket is closed.
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
			_, _ = conn.WriteToUDPAddrPort(packet, from) // who asks will notice
		}
	case echoReply:
		if h.sender == p.sender && p.hear(now, from, h, len(packet)+headers) {
			p.options.Changed()
		}
	case sights:
		p.mu.Lock()
		name, known := p.aim.Nodes[from.Addr()]
		p.mu.Unlock()
		node, all, ok := parseSights(packet[headerSize:])
		if known && ok && node == name && p.options.Heard != nil {
			p.options.Heard(Heard{Node: node, Sights: all, sender: h.sender, sequence: h.sequence})
		}
	}
}

func (p *Prober) answers(source netip.Addr, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aim.Local.IsValid() && p.echo.allow(source, now)
}

// hear takes a reply and tells whether something changed by it.
func (p *Prober) hear(now time.Time, from netip.AddrPort, h header, size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byAddr[from.Addr()]
	if one == nil || from.Port() != p.options.Port || int(h.lane) != one.Lane {
		return false
	}
	if h.sequence&ofPath == 0 {
		return one.leg.hear(now, h.sequence)
	}
	before := one.path.mtu
	one.path.hear(now, size)
	if one.path.phase == searching {
		select { // the next size need not wait
		case p.kick <- struct{}{}:
		default:
		}
	}
	return one.path.mtu != before
}
