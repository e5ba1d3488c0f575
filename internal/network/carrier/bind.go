// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"net"
	"net/netip"
	"sync"

	"golang.zx2c4.com/wireguard/conn"
)

// Bind is the network of a WireGuard device in this process: UDP, and the streams of a hub.
type Bind struct {
	conn.Bind // UDP
	hub       *Hub

	arrived chan *arrival
	mu      sync.Mutex
	done    chan struct{} // closed while the device does not receive
}

// arrival are datagrams of one stream. The goroutine that read them waits until all are taken.
type arrival struct {
	from      netip.AddrPort
	datagrams [][]byte
	taken     chan struct{}
}

// NewBind returns a network for one device, which gets all datagrams of the hub.
func NewBind(udp conn.Bind, hub *Hub) *Bind {
	b := &Bind{Bind: udp, hub: hub, arrived: make(chan *arrival), done: make(chan struct{})}
	close(b.done)
	deliver := b.deliver
	hub.deliver.Store(&deliver)
	return b
}

// Open starts to receive.
func (b *Bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	receivers, actual, err := b.Bind.Open(port)
	if err != nil {
		return nil, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = make(chan struct{})
	return append(receivers, b.receiver(b.done)), actual, nil
}

// Close ends all receivers. The streams stay.
func (b *Bind) Close() error {
	b.mu.Lock()
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	b.mu.Unlock()
	return b.Bind.Close()
}

func (b *Bind) current() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// deliver waits until the device has taken the datagrams. What arrives while it does not receive is lost, as with UDP.
func (b *Bind) deliver(from netip.AddrPort, datagrams [][]byte) {
	one := &arrival{from: from, datagrams: datagrams, taken: make(chan struct{})}
	done := b.current()
	select {
	case b.arrived <- one:
	case <-done:
		return
	}
	<-one.taken
}

// receiver takes datagrams of streams.
func (b *Bind) receiver(done chan struct{}) conn.ReceiveFunc {
	var now *arrival
	var from conn.Endpoint
	return func(packets [][]byte, sizes []int, endpoints []conn.Endpoint) (int, error) {
		select {
		case <-done:
			if now != nil {
				close(now.taken)
				now = nil
			}
			return 0, net.ErrClosed
		default:
		}
		if now == nil {
			select {
			case now = <-b.arrived:
				from = endpoint(now.from)
			case <-done:
				return 0, net.ErrClosed
			}
		}
		n := min(len(now.datagrams), len(packets))
		for i, one := range now.datagrams[:n] {
			sizes[i], endpoints[i] = copy(packets[i], one), from
			if len(one) > len(packets[i]) {
				sizes[i] = 0 // no datagram of WireGuard
				if s := b.hub.at(now.from); s != nil {
					s.totals.Oversized.Add(1)
				}
			}
		}
		if now.datagrams = now.datagrams[n:]; len(now.datagrams) == 0 {
			close(now.taken)
			now = nil
		}
		return n, nil
	}
}

// Send sends datagrams to an address of the network or of a stream.
func (b *Bind) Send(datagrams [][]byte, to conn.Endpoint) error {
	address, is := to.(endpoint)
	if !is {
		return b.Bind.Send(datagrams, to)
	}
	s := b.hub.at(netip.AddrPort(address))
	if s == nil {
		return nil // lost, as on any network: WireGuard would log each datagram
	}
	if udp, ok := s.trialTo(); ok {
		if parsed, err := b.Bind.ParseEndpoint(udp.String()); err == nil {
			_ = b.Bind.Send(datagrams, parsed) // it may well be blocked
		}
	}
	s.send(datagrams)
	return nil
}

// ParseEndpoint returns the endpoint of a text: that of a stream for its address.
func (b *Bind) ParseEndpoint(text string) (conn.Endpoint, error) {
	if address, err := netip.ParseAddrPort(text); err == nil && isStream(address.Addr()) {
		return endpoint(address), nil
	}
	return b.Bind.ParseEndpoint(text)
}

// endpoint is a stream, by its address.
type endpoint netip.AddrPort

func (e endpoint) ClearSrc()           {}
func (e endpoint) SrcToString() string { return "" }
func (e endpoint) DstToString() string { return netip.AddrPort(e).String() }
func (e endpoint) DstIP() netip.Addr   { return netip.AddrPort(e).Addr() }
func (e endpoint) SrcIP() netip.Addr   { return netip.Addr{} }

func (e endpoint) DstToBytes() []byte {
	text, _ := netip.AddrPort(e).MarshalBinary() // it never fails
	return text
}
