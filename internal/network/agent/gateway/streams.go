// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/plan"
)

const (
	// tryEvery is how often a tunnel over a stream tries UDP, and tryFor how long copies of its packets go there.
	tryEvery, tryFor = 20 * time.Second, time.Second
	// spareFor is how long a stream stays after the tunnel has moved to UDP.
	spareFor = 10 * time.Second
	// maxWays bounds the ways of one peer that are dialled.
	maxWays = 16
)

// streams are the ways to peers over TCP, for networks in which UDP does not pass.
type streams struct {
	hub     *carrier.Hub
	log     logr.Logger
	changed func()
	// proxy returns the HTTP proxy for a host and port.
	proxy func(hostPort string) (*url.URL, error)
	// resolve looks up names that a proxy would look up otherwise; nil: the proxy does.
	resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	mu sync.Mutex
	// private and peers are the keys that the hub has. One goroutine uses them.
	private carrier.Key
	peers   []carrier.Key
	// wanted ends the goroutines that open streams, by key of the peer's gateway.
	wanted map[carrier.Key]*attempt
	// problems are why the last attempt failed, by kind of carrier.
	problems map[carrier.Key]map[transport.Kind]string
}

func newStreams(hub *carrier.Hub, log logr.Logger, changed func()) *streams {
	return &streams{
		hub: hub, log: log, changed: changed, wanted: map[carrier.Key]*attempt{}, problems: map[carrier.Key]map[transport.Kind]string{},
	}
}

// way is what one peer's tunnel may use, as it is observed.
type way struct {
	key carrier.Key
	// address stands for the stream in the configuration of WireGuard.
	address netip.AddrPort
	// targets are those of streams, which this end may dial. open: there is a stream, of either end.
	targets []transport.Target
	open    bool
	// udp are the addresses without a stream.
	udp []netip.AddrPort
}

// keyOf parses the public key of a gateway.
func keyOf(text string) (key carrier.Key, is bool) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(decoded) != len(key) {
		return key, false
	}
	return carrier.Key(decoded), true
}

// wayTo returns the ways over TCP to a peer's gateway; false without any.
func (s *streams) wayTo(key string, endpoints []agent.Endpoint, off offLimits) (w way, is bool) {
	if w.key, is = keyOf(key); !is {
		return way{}, false
	}
	w.address = s.hub.AddressOf(w.key)
	_, w.open = s.hub.Stream(w.key)
	// The first address of each kind comes first, then the second ones: a host that does not answer must not keep a whole kind back.
	rank, number := map[transport.Kind]int{}, map[string]int{}
	for _, one := range endpoints {
		if one.Kind == netv1alpha1.CarrierUDP {
			continue
		}
		if address, err := netip.ParseAddr(one.Host); err == nil && (dialable(address.Unmap()) != nil || off.refuse(address.Unmap(), one.Host) != nil) {
			continue
		}
		target := transport.Target{
			Kind: transport.Kind(one.Kind), Host: one.Host, Port: one.Port, Path: one.Path, Plain: one.Plain, Proxy: s.proxy, Resolve: s.resolve, Refuse: func(address netip.Addr) error {
				if err := dialable(address); err != nil {
					return err
				}
				return off.refuse(address, one.Host)
			},
		}
		w.targets = append(w.targets, target)
		number[target.String()] = rank[target.Kind]
		rank[target.Kind]++
	}
	slices.SortStableFunc(w.targets, func(a, b transport.Target) int { return number[a.String()] - number[b.String()] })
	w.targets = w.targets[:min(len(w.targets), maxWays)]
	return w, w.open || len(w.targets) > 0
}

// carrierOf returns what carries the packets of a tunnel, and where to. at is where WireGuard sends, text the same or what is dialled.
func (s *streams) carrierOf(key string, at netip.AddrPort, text string) (kind, to string) {
	decoded, is := keyOf(key)
	if !is || !at.IsValid() {
		return "", text
	}
	if at != s.hub.AddressOf(decoded) {
		return netv1alpha1.CarrierUDP, text
	}
	info, is := s.hub.Stream(decoded)
	if !is {
		return "", ""
	}
	return string(info.Kind), info.Remote
}

// drop ends a stream that is not needed, and the attempts to open one. A stream that the peer has opened is the peer's to end.
func (s *streams) drop(key carrier.Key) {
	s.mu.Lock()
	if one := s.wanted[key]; one != nil {
		one.cancel()
		delete(s.wanted, key)
	}
	s.mu.Unlock()
	if info, is := s.hub.Stream(key); is && info.Dialled {
		s.hub.Hangup(key)
	}
}

// problem is why no stream could be opened; empty if none was tried.
func (s *streams) problem(key carrier.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted[key] == nil {
		return ""
	}
	for _, kind := range []transport.Kind{transport.TLS, transport.WebSocket} {
		if why := s.problems[key][kind]; why != "" {
			return why
		}
	}
	return ""
}

// whyNot returns why a tunnel does not use a better carrier than it does; empty if there is none. It does not change from one attempt to the next, because
// it becomes part of a status.
func (s *streams) whyNot(key, kind string, endpoints []agent.Endpoint) string {
	decoded, is := keyOf(key)
	if kind == "" || kind == netv1alpha1.CarrierUDP || !is {
		return ""
	}
	var udp []string
	announced := map[string]bool{}
	for _, one := range endpoints {
		announced[one.Kind] = true
		if one.Kind == netv1alpha1.CarrierUDP && len(udp) < maxNamed {
			udp = append(udp, net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port))))
		}
	}
	why := "UDP: the peer announces no address that this cluster can dial"
	if len(udp) > 0 {
		why = fmt.Sprintf("UDP: %s did not answer; it is tried every %s", strings.Join(udp, ", "), tryEvery)
	}
	if kind != netv1alpha1.CarrierWebSocket {
		return why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch problem := s.problems[decoded][transport.TLS]; {
	case problem != "":
		why += "; TLS: " + problem
	case !announced[netv1alpha1.CarrierTLS]:
		why += "; TLS: the peer announces no address"
	}
	return why
}

// maxNamed bounds the addresses in a message.
const maxNamed = 3

// keep ends the attempts for peers that are gone.
func (s *streams) keep(keys []carrier.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.problems, func(key carrier.Key, _ map[transport.Kind]string) bool { return !slices.Contains(keys, key) })
	for key, one := range s.wanted {
		if !slices.Contains(keys, key) {
			one.cancel()
			delete(s.wanted, key)
		}
	}
}

// shift decides whether a tunnel over a stream tries UDP, and notices when it has moved there.
type shift struct {
	// tried is when UDP was tried last, next which address comes next; moved is when the tunnel moved to UDP, zero if it has not.
	tried, moved time.Time
	next         int
}

// step returns the address that the tunnel has moved to, or the one to try now; both are invalid if nothing is to be done. at is where WireGuard sends now, or a UDP
// address from which it has received.
func (d *shift) step(now time.Time, udp []netip.AddrPort, at netip.AddrPort) (moved, try netip.AddrPort) {
	switch {
	case len(udp) == 0:
		return netip.AddrPort{}, netip.AddrPort{}
	case slices.Contains(udp, at):
		d.moved = now
		return at, netip.AddrPort{}
	case d.tried.IsZero():
		d.tried = now // it was just found not to work
	case now.Sub(d.tried) >= tryEvery || now.Before(d.tried):
		d.tried = now
		d.next++
		return netip.AddrPort{}, udp[(d.next-1)%len(udp)]
	}
	return netip.AddrPort{}, netip.AddrPort{}
}

// carry opens the stream of a peer when UDP fails, tries UDP while the stream is in use, and ends it afterwards. It returns when to call it again.
func (g *Gateway) carry(now time.Time, known *peer, tcp way, s seen, at netip.AddrPort) time.Time {
	if !s.silent(now) && at == tcp.address && known.dialer.target != at {
		known.dialer.target = at // the peer has moved the tunnel to the stream; without another attempt: the session goes on
	}
	on := known.dialer.target == tcp.address
	switch {
	case s.silent(now):
		known.shift.moved = time.Time{}
		g.o.Hub.Abandon(tcp.key) // otherwise the stream that still stands would lead back to UDP at once
		if why := g.streams.problem(tcp.key); why != "" && on {
			known.problem = "neither UDP nor a stream reaches the peer's gateway: " + why
		}
		if on || known.dialer.attempts > 0 || len(tcp.udp) == 0 {
			g.streams.want(tcp) // ready when the dialer comes to it
		}
		return time.Time{}
	case on:
		if udp, is := g.o.Hub.Passed(tcp.key); is {
			at = udp // of a device of the kernel, which has not moved itself
		}
		moved, try := known.shift.step(now, tcp.udp, at)
		if moved.IsValid() {
			known.dialer.target = moved // without another attempt: the session goes on
			return now.Add(spareFor)
		}
		if try.IsValid() {
			g.o.Hub.Try(tcp.key, try, now.Add(tryFor))
		}
		return now.Add(min(tryEvery, time.Second))
	case now.Sub(known.shift.moved) >= spareFor:
		g.streams.drop(tcp.key)
		known.shift = shift{}
		return time.Time{}
	}
	return known.shift.moved.Add(spareFor)
}

// shareKeys has the hub admit the gateways of all peers, and nothing else.
func (g *Gateway) shareKeys(s plan.Snapshot) {
	var keys []carrier.Key
	for _, peer := range s.Peers {
		for _, lane := range peer.Lanes {
			if lane.Number != g.o.Lane {
				continue
			}
			for _, key := range lane.Keys {
				if decoded, is := keyOf(key); is {
					keys = append(keys, decoded)
				}
			}
		}
	}
	g.streams.keep(keys)
	private, is := g.o.Keys.Private(s.Self.PublicKey)
	if !is {
		return
	}
	if err := g.streams.setKeys(carrier.Key(private), keys); err != nil {
		g.o.Log.Error(err, "peers cannot open streams")
	}
}

// setKeys changes the keys of the hub if they differ.
func (s *streams) setKeys(private carrier.Key, peers []carrier.Key) error {
	if private == s.private && slices.Equal(peers, s.peers) {
		return nil
	}
	s.private, s.peers = private, peers
	return s.hub.SetKeys(private, peers)
}

// accept serves streams of peers until ctx ends.
func (g *Gateway) accept(ctx context.Context) error {
	at, err := listener.Open(ctx, net.JoinHostPort("", strconv.Itoa(g.o.StreamPort)))
	if err != nil {
		return fmt.Errorf("listen for streams of peers: %w", err)
	}
	server := &carrier.Server{Hub: g.o.Hub, Path: func(path string) bool { return carrier.IsPathOf(path, g.o.Lane) }, Log: g.o.Log}
	return server.Serve(ctx, at)
}

// earlier returns the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
