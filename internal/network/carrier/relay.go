// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"
)

// Relay joins the streams of a hub with a WireGuard device of the kernel: each stream is a UDP socket with the stream's address, in the loopback network of the
// gateway. The kernel sends to it as to any other endpoint.
type Relay struct {
	hub  *Hub
	port uint16 // of the device

	mu      sync.Mutex
	sockets map[netip.AddrPort]*socket
	outside *net.UDPConn // for copies
}

// socket is one stream for the kernel.
type socket struct {
	conn *net.UDPConn
	out  *ipv4.PacketConn
	// messages is reused by deliver, which one goroutine calls.
	messages []ipv4.Message
}

// batch is how many datagrams a system call moves.
const batch = 128

// NewRelay returns a relay for the device that listens on a UDP port of the loopback network.
func NewRelay(hub *Hub, port uint16) (*Relay, error) {
	outside, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket: %w", err)
	}
	r := &Relay{hub: hub, port: port, sockets: map[netip.AddrPort]*socket{}, outside: outside}
	deliver := r.deliver
	hub.deliver.Store(&deliver)
	return r, nil
}

// Open prepares the address of a stream, so that the device can send to it. It is called before the device knows the peer by it, and may be repeated.
func (r *Relay) Open(ctx context.Context, peer Key) error {
	address := AddressOf(peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sockets[address] != nil {
		return nil
	}
	device := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(r.port)}
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(address), device)
	if err != nil {
		return fmt.Errorf("open the address of a stream, %s: %w", address, err)
	}
	one := &socket{conn: conn, out: ipv4.NewPacketConn(conn), messages: make([]ipv4.Message, 0, batch)}
	r.sockets[address] = one
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sockets, address)
		_ = conn.Close() // ends the goroutine
	})
	go r.receive(address, one)
	return nil
}

// Close ends the relay. Contexts of Open end the sockets.
func (r *Relay) Close() { _ = r.outside.Close() }

// receive moves datagrams of the kernel into a stream.
func (r *Relay) receive(address netip.AddrPort, from *socket) {
	in := ipv4.NewPacketConn(from.conn)
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1<<16)}
	}
	datagrams := make([][]byte, 0, batch)
	for {
		n, err := in.ReadBatch(messages, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the device has no socket at the moment
		}
		datagrams = datagrams[:0]
		for i := range messages[:n] {
			datagrams = append(datagrams, messages[i].Buffers[0][:messages[i].N])
		}
		s := r.hub.at(address)
		if s == nil {
			continue // lost, as on any network
		}
		if udp, is := s.trialTo(); is {
			for _, one := range datagrams {
				_, _ = r.outside.WriteToUDPAddrPort(one, udp) // it may well be blocked
			}
		}
		s.send(datagrams)
	}
}

// deliver moves datagrams of a stream to the kernel.
func (r *Relay) deliver(from netip.AddrPort, datagrams [][]byte) {
	r.mu.Lock()
	to := r.sockets[from]
	r.mu.Unlock()
	if to == nil {
		return
	}
	to.messages = to.messages[:0]
	for _, one := range datagrams {
		to.messages = append(to.messages, ipv4.Message{Buffers: [][]byte{one}})
	}
	for left := to.messages; len(left) > 0; {
		n, err := to.out.WriteBatch(left[:min(len(left), batch)], 0)
		if err != nil || n == 0 {
			return // lost, as on any network
		}
		left = left[n:]
	}
}
