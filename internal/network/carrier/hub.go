// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/plan/carriers"
)

const (
	// Port is that of all addresses of streams. Nothing else in the network of a gateway uses it.
	Port = 5875
	// A peer may open admitBurst streams at once, and one per admitPause: each replaces the one before, and costs more than it costs the peer.
	admitBurst, admitPause = 10, time.Second
	// The log names logBurst streams of a peer, and one more per logPause; the others only at a higher level.
	logBurst, logPause = 20, 30 * time.Second
)

// PathOf is the path at which the gateway of a lane accepts WebSockets.
func PathOf(lane int) string { return fmt.Sprintf("/liqo/lane-%d", lane) }

// IsPathOf reports whether the gateway of a lane accepts WebSockets at a path: whatever comes before the last part, since proxies add and remove it.
func IsPathOf(path string, lane int) bool {
	return strings.HasSuffix(path, fmt.Sprintf("/lane-%d", lane))
}

// isStream reports whether an address is one that AddressOf gives.
func isStream(address netip.Addr) bool {
	if !address.Is4() {
		return false
	}
	four := address.As4()
	return four[0] == 127 && four[1]&0xc0 == 64
}

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
	// members are the peers of which something is remembered, used the last address that was given out.
	members map[Key]*member
	used    uint32
	all     atomic.Pointer[map[netip.AddrPort]*stream] // by address, for the path of packets
}

// member is what a hub remembers of a peer, whether or not there is a stream.
type member struct {
	address netip.AddrPort
	admit   *rate.Limiter
	logged  *rate.Limiter
	totals  Totals
}

// New returns a hub without keys: it admits no peer.
func New(o Options) *Hub {
	h := &Hub{options: o, streams: map[Key]*stream{}, members: map[Key]*member{}, used: mathrand.Uint32()} // hubs of one host do not meet
	h.all.Store(&map[netip.AddrPort]*stream{})
	return h
}

// AddressOf is the address that stands for the stream with a peer, in the loopback network. It is the same as long as the hub has the peer. The hub gives
// addresses out one by one: if they followed from the key, a peer could choose a key whose address is that of another peer.
func (h *Hub) AddressOf(peer Key) netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.member(peer).address
}

// member remembers a peer. The lock is held.
func (h *Hub) member(peer Key) *member {
	one := h.members[peer]
	if one == nil {
		h.used++
		four := [4]byte{127, 64 | byte(h.used>>16)&63, byte(h.used >> 8), byte(h.used)}
		one = &member{
			address: netip.AddrPortFrom(netip.AddrFrom4(four), Port),
			admit:   rate.NewLimiter(rate.Every(admitPause), admitBurst), logged: rate.NewLimiter(rate.Every(logPause), logBurst),
		}
		h.members[peer] = one
	}
	return one
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
	maps.DeleteFunc(h.members, func(peer Key, _ *member) bool { return ring.accepts[peer] == nil })
	h.mu.Unlock()
	for _, peer := range removed {
		h.end(peer, errNoPeer)
	}
	return nil
}

// Dial opens a stream with a peer, unless there is one.
func (h *Hub) Dial(ctx context.Context, peer Key, to transport.Target) error {
	if _, ok := h.Stream(peer); ok {
		return nil
	}
	ring := h.keys.Load()
	if ring == nil {
		return errNoPeer
	}
	conn, raw, err := transport.Dial(ctx, to)
	if err != nil {
		return &transport.Failure{Target: to, Cause: err}
	}
	_ = conn.SetDeadline(time.Now().Add(transport.HelloTime))
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = ring.introduce(conn, peer)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close() // it failed already
		return &transport.Failure{Target: to, Cause: err}
	}
	_ = h.start(peer, conn, raw, Info{Kind: to.Kind, Dialled: true, Remote: to.HostPort()}) // if it is not taken, there is one that the peer dialled
	return nil
}

// admit finds out who dialled, and starts the stream.
func (h *Hub) admit(conn, raw net.Conn, kind transport.Kind) error {
	ring := h.keys.Load()
	if ring == nil {
		ring = &keyring{} // it admits none, and shows that there is a gateway
	}
	peer, err := ring.welcome(conn)
	if err != nil {
		return err
	}
	h.mu.Lock()
	allowed := h.member(peer).admit.Allow()
	h.mu.Unlock()
	if !allowed {
		return errTooOften
	}
	if _, err := conn.Write(transport.AppendFrame(nil, nil)); err != nil {
		return err
	}
	return h.start(peer, conn, raw, Info{Kind: kind, Remote: raw.RemoteAddr().String()})
}

// start has a stream carry datagrams, unless the one that there is stays.
func (h *Hub) start(peer Key, conn, raw net.Conn, info Info) error {
	_ = conn.SetDeadline(time.Time{})
	info.Since = time.Now()
	ring := h.keys.Load()
	h.mu.Lock()
	old := h.streams[peer]
	if ring.accepts[peer] == nil || old != nil && !carriers.Replaces(ring.public[:], peer[:], old.info.opened(), info.opened(), transport.HelloTime) {
		h.mu.Unlock()
		_ = raw.Close() // it is of no use
		return errCrossed
	}
	known := h.member(peer)
	s := newStream(conn, raw, known.address, info, &known.totals)
	h.streams[peer] = s
	h.index()
	h.mu.Unlock()
	if old != nil {
		old.close(errReplaced)
	}
	log := h.options.Log.WithValues("peer", base64.StdEncoding.EncodeToString(peer[:]), "kind", info.Kind, "dialled", info.Dialled, "remote", info.Remote)
	if !known.logged.Allow() {
		log = log.V(1)
	}
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
		log.Info("stream of a peer ended", "reason", s.cause.Error(), "dropped", s.totals.Dropped.Load())
		if current {
			h.changed(peer)
		}
	}()
	h.changed(peer)
	return nil
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
	return s.info, true
}

// TotalsOf counts what all streams with a peer have carried.
func (h *Hub) TotalsOf(peer Key) *Totals {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &h.member(peer).totals
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
	if s := h.streamOf(peer); s != nil {
		s.trial.Store(&trial{to: udp, until: until})
	}
}

// Abandon forgets the last trial: what passed then does not pass now. A stream may outlive the move to UDP, and serve again.
func (h *Hub) Abandon(peer Key) {
	if s := h.streamOf(peer); s != nil {
		s.trial.Store(nil)
	}
}

// Passed returns the address of the last trial if packets of the peer came from there. It is for devices of the kernel, which do not see the trial themselves.
func (h *Hub) Passed(peer Key) (udp netip.AddrPort, is bool) {
	s := h.streamOf(peer)
	if s == nil {
		return netip.AddrPort{}, false
	}
	if t := s.trial.Load(); t != nil && t.passed.Load() {
		return t.to, true
	}
	return netip.AddrPort{}, false
}

func (h *Hub) streamOf(peer Key) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[peer]
}
