// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/go-logr/logr"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
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

// way is the stream with one peer, as it is observed.
type way struct {
	key carrier.Key
	// address stands for the stream in the configuration of WireGuard.
	address netip.AddrPort
	// targets are those that this end may dial. open: there is a stream, of either end.
	targets []transport.Target
	open    bool
}

// keyOf parses the public key of a gateway.
func keyOf(text string) (key carrier.Key, ok bool) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(decoded) != len(key) {
		return key, false
	}
	return carrier.Key(decoded), true
}

// wayTo returns the stream with a peer's gateway; false if there is none and none can be opened.
func (s *streams) wayTo(key string, endpoints []agent.Endpoint, off carriers.OffLimits) (w way, is bool) {
	if w.key, is = keyOf(key); !is {
		return way{}, false
	}
	w.address = s.hub.AddressOf(w.key)
	_, w.open = s.hub.Stream(w.key)
	for _, one := range carriers.Streams(endpoints, func(address netip.Addr, host string) error {
		return cmp.Or(carriers.Dialable(address), off.Refuse(address, host))
	}) {
		w.targets = append(w.targets, transport.Target{
			Kind: transport.Kind(one.Kind), Host: one.Host, Port: one.Port, Path: one.Path, Plain: one.Plain, Proxy: s.proxy, Resolve: s.resolve,
			Refuse: func(address netip.Addr) error {
				return cmp.Or(carriers.Dialable(address), off.Refuse(address, one.Host))
			},
		})
	}
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
	if info, ok := s.hub.Stream(key); ok && info.Dialled {
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

// whyNot returns why a tunnel does not use a better carrier than kind; empty if there is none.
func (s *streams) whyNot(key, kind string, endpoints []agent.Endpoint) string {
	decoded, ok := keyOf(key)
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return carriers.WhyNot(kind, endpoints, s.problems[decoded][transport.TLS])
}

// act does what is decided about a peer.
func (s *streams) act(w way, d *carriers.Decision) {
	if d.Abandon {
		s.hub.Abandon(w.key)
	}
	if d.Try.IsValid() {
		s.hub.Try(w.key, d.Try, d.Until)
	}
	if d.Open {
		s.want(w)
	}
	if d.Drop {
		s.drop(w.key)
	}
}

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

// shareKeys has the hub admit the gateways of all peers, and nothing else.
func (g *Gateway) shareKeys(s plan.Snapshot) {
	var keys []carrier.Key
	for _, peer := range s.Peers {
		for _, lane := range peer.Lanes {
			if lane.Number != g.o.Lane {
				continue
			}
			for _, key := range lane.Keys {
				if decoded, ok := keyOf(key); ok {
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
