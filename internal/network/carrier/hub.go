// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// AddressOf is the address that stands for the stream with a peer, in the loopback network. It follows from the key alone, so it is the same after each restart.
func AddressOf(peer Key) netip.AddrPort {
	sum := sha256.Sum256(append([]byte(purpose), peer[:]...))
	const unprivileged = 1024
	port := unprivileged + binary.BigEndian.Uint16(sum[3:])%(1<<16-1-unprivileged)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 64 | sum[0]&63, sum[1], 1 | sum[2]}), port)
}

// PathOf is the path at which the gateway of a lane accepts WebSockets.
func PathOf(lane int) string { return fmt.Sprintf("/liqo/lane-%d", lane) }

// isStream reports whether an address is one that AddressOf gives.
func isStream(address netip.Addr) bool {
	if !address.Is4() {
		return false
	}
	four := address.As4()
	return four[0] == 127 && four[1]&0xc0 == 64
}

// Options of a hub.
type Options struct {
	Log logr.Logger
	// Changed is called when a stream has opened or ended; nil for no call.
	Changed func(peer Key)
}

// Hub has the streams of one gateway.
type Hub struct {
	options Options
	keys    atomic.Pointer[keyring]
	// deliver hands datagrams to WireGuard before it returns.
	deliver atomic.Pointer[func(from netip.AddrPort, datagrams [][]byte)]

	mu      sync.Mutex
	streams map[Key]*stream
	all     atomic.Pointer[map[netip.AddrPort]*stream] // by address, for the path of packets
}

// New returns a hub without keys: it admits no peer.
func New(o Options) *Hub {
	h := &Hub{options: o, streams: map[Key]*stream{}}
	h.all.Store(&map[netip.AddrPort]*stream{})
	return h
}

// SetKeys sets the private key of this end and the public keys of its peers. Streams of others are closed.
func (h *Hub) SetKeys(private Key, peers []Key) error {
	ring, err := newKeyring(private, peers)
	if err != nil {
		return fmt.Errorf("keys of the carriers: %w", err)
	}
	h.keys.Store(ring)
	h.mu.Lock()
	var removed []Key
	for peer := range h.streams {
		if ring.accepts[peer] == nil {
			removed = append(removed, peer)
		}
	}
	h.mu.Unlock()
	for _, peer := range removed {
		h.end(peer, errNoPeer)
	}
	return nil
}

// Dial opens a stream with a peer, unless there is one.
func (h *Hub) Dial(ctx context.Context, peer Key, to Target) error {
	if _, is := h.Stream(peer); is {
		return nil
	}
	ring := h.keys.Load()
	if ring == nil {
		return errNoPeer
	}
	conn, raw, err := dial(ctx, to)
	if err != nil {
		return fmt.Errorf("dial %s: %w", to, err)
	}
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = ring.introduce(conn, peer)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close() // it failed already
		return fmt.Errorf("dial %s: %w", to, err)
	}
	h.start(peer, conn, raw, Info{Kind: to.Kind, Dialled: true, Remote: to.hostPort()})
	return nil
}

// admit finds out who dialled, and starts the stream.
func (h *Hub) admit(conn, raw net.Conn, kind Kind) error {
	ring := h.keys.Load()
	if ring == nil {
		return errNoPeer
	}
	peer, err := ring.welcome(conn)
	if err != nil {
		return err
	}
	if _, err := conn.Write(appendFrame(nil, nil)); err != nil {
		return err
	}
	h.start(peer, conn, raw, Info{Kind: kind, Remote: raw.RemoteAddr().String()})
	return nil
}

// start has a stream carry datagrams. It replaces an older one with the same peer, which may be dead already.
func (h *Hub) start(peer Key, conn, raw net.Conn, info Info) {
	_ = conn.SetDeadline(time.Time{})
	info.Since = time.Now()
	s := newStream(conn, raw, AddressOf(peer), info)
	h.mu.Lock()
	old := h.streams[peer]
	h.streams[peer] = s
	h.index()
	h.mu.Unlock()
	if old != nil {
		old.close(errReplaced)
	}
	log := h.options.Log.WithValues("kind", info.Kind, "dialled", info.Dialled, "remote", info.Remote)
	log.Info("stream of a peer opened")
	go s.write()
	go func() {
		s.read(func(from netip.AddrPort, datagrams [][]byte) {
			if deliver := h.deliver.Load(); deliver != nil {
				(*deliver)(from, datagrams)
			}
		})
		h.mu.Lock()
		current := h.streams[peer] == s
		if current {
			delete(h.streams, peer)
			h.index()
		}
		h.mu.Unlock()
		log.Info("stream of a peer ended", "reason", s.cause.Error(), "dropped", s.dropped.Load())
		if current {
			h.changed(peer)
		}
	}()
	h.changed(peer)
}

func (h *Hub) changed(peer Key) {
	if h.options.Changed != nil {
		h.options.Changed(peer)
	}
}

// index rebuilds the map of the path of packets. The lock is held.
func (h *Hub) index() {
	all := make(map[netip.AddrPort]*stream, len(h.streams))
	for _, one := range h.streams {
		all[one.address] = one
	}
	h.all.Store(&all)
}

// at is the stream with an address; nil if there is none.
func (h *Hub) at(address netip.AddrPort) *stream { return (*h.all.Load())[address] }

// Stream describes the stream with a peer.
func (h *Hub) Stream(peer Key) (Info, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[peer]
	if s == nil {
		return Info{}, false
	}
	info := s.info
	info.Dropped = s.dropped.Load()
	return info, true
}

// Hangup ends the stream with a peer, if there is one.
func (h *Hub) Hangup(peer Key) { h.end(peer, errHangup) }

// end forgets the stream with a peer at once, so that another one can be opened, and closes it.
func (h *Hub) end(peer Key, cause error) {
	h.mu.Lock()
	s := h.streams[peer]
	delete(h.streams, peer)
	h.index()
	h.mu.Unlock()
	if s != nil {
		s.close(cause)
		h.changed(peer)
	}
}

// Close ends all streams.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.streams {
		one.close(errHangup)
	}
}

// Try also sends what goes into the stream with a peer over UDP to an address, until a time. If UDP works, each end receives the other's packets there first,
// and WireGuard uses that way from then on; if not, the stream has carried all of them.
func (h *Hub) Try(peer Key, udp netip.AddrPort, until time.Time) {
	if s := h.at(AddressOf(peer)); s != nil {
		s.trial.Store(&trial{to: udp, until: until})
	}
}
