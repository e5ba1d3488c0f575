// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

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
	// index is the receiver of the peer's last packet of data: the number of a session, which only the two ends and the way between them know.
	index atomic.Uint32

	mu       sync.Mutex
	out      *ipv4.PacketConn
	messages []ipv4.Message // reused by write
}

const (
	// batch is how many datagrams a system call moves.
	batch = 128
	// maxPacket is the largest datagram of a device: a jumbo frame.
	maxPacket = 10 << 10
	// The first bytes of WireGuard's packets of data: their type, and the receiver.
	dataType, dataHeader = 4, 16
)

// NewRelay returns a relay for the device that listens on a UDP port of the loopback network.
func NewRelay(hub *Hub, port uint16) (*Relay, error) {
	outside, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket: %w", err)
	}
	r := &Relay{hub: hub, port: port, sockets: map[netip.AddrPort]*socket{}, outside: outside}
	deliver := r.deliver
	hub.deliver.Store(&deliver)
	go r.answers()
	return r, nil
}

// Keep prepares the addresses of the streams with these peers, so that the device can send to them, and ends all others. It is called before the device knows a
// peer by its address, and may be repeated. An error leaves the other peers as they should be.
func (r *Relay) Keep(peers []Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	wanted := make(map[netip.AddrPort]bool, len(peers))
	for _, peer := range peers {
		address := r.hub.AddressOf(peer)
		if wanted[address] = true; r.sockets[address] == nil {
			errs = append(errs, r.open(address))
		}
	}
	for address, one := range r.sockets {
		if !wanted[address] {
			delete(r.sockets, address)
			_ = one.conn.Close() // ends the goroutine
		}
	}
	return errors.Join(errs...)
}

// open adds the socket of an address. The lock is held.
func (r *Relay) open(address netip.AddrPort) error {
	device := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(r.port)}
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(address), device)
	if err != nil {
		return fmt.Errorf("open the address of a stream, %s: %w", address, err)
	}
	one := &socket{conn: conn, out: ipv4.NewPacketConn(conn)}
	r.sockets[address] = one
	go r.receive(address, one)
	return nil
}

func (r *Relay) Close() {
	_ = r.Keep(nil)
	_ = r.outside.Close()
}

// receive moves datagrams of the kernel into a stream.
func (r *Relay) receive(address netip.AddrPort, from *socket) {
	in := ipv4.NewPacketConn(from.conn)
	messages := buffers(1) // of most peers nothing ever arrives here
	datagrams := make([][]byte, 0, batch)
	for {
		n, err := in.ReadBatch(messages, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the device has no socket at the moment
		}
		s := r.hub.at(address)
		if s == nil {
			messages = messages[:1:1]
			continue // lost, as on any network
		}
		datagrams = datagrams[:0]
		for i := range messages[:n] {
			if messages[i].N > maxPacket { // its end is lost, so the peer could not decrypt it
				s.totals.Oversized.Add(1)
				continue
			}
			datagrams = append(datagrams, messages[i].Buffers[0][:messages[i].N])
		}
		if udp, ok := s.trialTo(); ok {
			for _, one := range datagrams {
				_, _ = r.outside.WriteToUDPAddrPort(one, udp) // it may well be blocked
			}
		}
		s.send(datagrams)
		if len(messages) < batch {
			messages = buffers(batch)
		}
	}
}

func buffers(n int) []ipv4.Message {
	messages := make([]ipv4.Message, n)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, maxPacket+1)} // one more, to notice a larger one
	}
	return messages
}

// deliver moves datagrams of a stream to the kernel.
func (r *Relay) deliver(from netip.AddrPort, datagrams [][]byte) {
	r.mu.Lock()
	to := r.sockets[from]
	r.mu.Unlock()
	if to == nil {
		return
	}
	for _, one := range datagrams {
		if index, ok := receiver(one); ok {
			to.index.Store(index)
		}
	}
	to.write(datagrams)
}

// receiver returns the receiver of a packet of data.
func receiver(datagram []byte) (index uint32, is bool) {
	if len(datagram) < dataHeader || datagram[0] != dataType {
		return 0, false
	}
	return binary.LittleEndian.Uint32(datagram[4:]), true
}

func (s *socket) write(datagrams [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = s.messages[:0]
	for _, one := range datagrams {
		s.messages = append(s.messages, ipv4.Message{Buffers: [][]byte{one}})
	}
	for left := s.messages; len(left) > 0; {
		n, err := s.out.WriteBatch(left[:min(len(left), batch)], 0)
		if err != nil || n == 0 {
			return // lost, as on any network
		}
		left = left[n:]
	}
}

// answers moves what comes back to the copies to the kernel, and records that UDP works. The copies come from another port than the device's, because
// that belongs to the kernel, and the peer follows them: without this, all that it sends would be lost until the trial ends. Packets of other senders
// are ignored: they do not know the session.
func (r *Relay) answers() {
	buffer := make([]byte, maxPacket)
	for {
		n, from, err := r.outside.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		index, is := receiver(buffer[:n])
		if err != nil || !is {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		for address, s := range *r.hub.all.Load() {
			t := s.trial.Load()
			if t == nil || t.to != from {
				continue
			}
			r.mu.Lock()
			to := r.sockets[address]
			r.mu.Unlock()
			if to != nil && to.index.Load() == index {
				t.passed.Store(true)
				to.write([][]byte{buffer[:n]})
			}
		}
	}
}
