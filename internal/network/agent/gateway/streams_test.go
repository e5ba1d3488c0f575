// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/base64"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
	"liqo.io/liqo/internal/network/probe"
)

// farGateway is the gateway of a peer, which accepts streams at a port of the loopback from the holder of a private key.
func farGateway(t *testing.T) (public, admits carrier.Key, port uint16) {
	t.Helper()
	theirs, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	far := carrier.New(carrier.Options{Log: logr.Discard()})
	t.Cleanup(far.Close)
	if err := far.SetKeys(carrier.Key(theirs), []carrier.Key{carrier.Key(ours.PublicKey())}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = (&carrier.Server{Hub: far, Path: func(string) bool { return true }, Log: logr.Discard()}).Serve(t.Context(), listener)
	}()
	return carrier.Key(theirs.PublicKey()), carrier.Key(ours), netip.MustParseAddrPort(listener.Addr().String()).Port()
}

// TestCarry drives one gateway whose peer answers over TLS only, then also over UDP.
func TestCarry(t *testing.T) {
	peerKey, ours, port := farGateway(t)

	g := newBare()
	g.resolver = &resolver{}
	g.tunnel = map[string]host.TunnelPeer{}
	if err := g.streams.setKeys(ours, []carrier.Key{peerKey}); err != nil {
		t.Fatal(err)
	}
	known, key := &peer{tunnel: newTunnel()}, base64.StdEncoding.EncodeToString(peerKey[:])
	l := laneInputs{elsewhere: func(string) bool { return false }, endpoints: []agent.Endpoint{
		{Kind: "UDP", Host: hostA.Addr().String(), Port: hostA.Port()},
		{Kind: "UDP", Host: hostB.Addr().String(), Port: hostB.Port()},
		{Kind: "TLS", Host: "127.0.0.1", Port: port},
	}}
	stream := g.o.Hub.AddressOf(peerKey)
	dials := 0
	step := func(at time.Duration) netip.AddrPort {
		lane := &plan.PeerLane{Keys: []string{key}}
		g.observeLane(began.Add(at), known, lane, l)
		dials = lane.Dial
		return lane.Endpoint
	}
	// The loopback is refused as the address of a peer, so this way is added below.
	if first := step(0); first != hostA {
		t.Fatalf("first it dials %s", first)
	}
	if _, ok := g.streams.wayTo(key, l.endpoints, l.off); ok {
		t.Fatal("a stream to this host is dialled")
	}
	w := way{key: peerKey, address: stream, targets: []transport.Target{{Kind: transport.TLS, Host: "127.0.0.1", Port: port}}}
	g.streams.want(w)
	until := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			if _, open := g.o.Hub.Stream(peerKey); open == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("a stream is open: want %v", want)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	until(true)
	at := 3 * time.Second
	for ; at < 10*time.Second && step(at) != stream; at += 100 * time.Millisecond {
	}
	if at > 5*time.Second {
		t.Errorf("it uses the stream after %v", at)
	}
	g.tunnel[key] = host.TunnelPeer{Endpoint: stream}
	l.result = probe.Result{Status: probe.Status{Last: began.Add(at), Timeout: time.Second}}
	for end := at + 22*time.Second; at < end; at += time.Second {
		l.result.Last = began.Add(at)
		if now := step(at); now != stream {
			t.Fatalf("at %v it uses %s", at, now)
		}
	}
	// A gateway whose peer has moved the tunnel to the stream tries UDP as well: behind NAT, only this one can.
	moved, lane := &peer{tunnel: newTunnel()}, &plan.PeerLane{Keys: []string{key}}
	l.result.Last = time.Time{}
	g.observeLane(began.Add(at), moved, lane, l) // dials over UDP
	if lane.Endpoint != hostA {
		t.Fatalf("first the other one dials %s", lane.Endpoint)
	}
	l.result.Last = began.Add(at)
	if g.observeLane(began.Add(at), moved, lane, l); lane.Endpoint != stream || lane.Dial != 1 {
		t.Errorf("after the peer has moved the tunnel it uses %s, dial %d", lane.Endpoint, lane.Dial)
	}
	before := dials
	g.tunnel[key] = host.TunnelPeer{Endpoint: hostA} // a copy has arrived there
	if now := step(at); now != hostA || dials != before {
		t.Errorf("it uses %s, after %d more attempts", now, dials-before)
	}
	for end := at + 20*time.Second; at < end; at += time.Second {
		l.result.Last = began.Add(at)
		step(at)
	}
	until(false)
}

// listen accepts connections and does what is given with them, until the test ends.
func listen(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// TestRace: a way that does not answer does not keep the others back, and ways that the peer announces while others are dialled are dialled.
func TestRace(t *testing.T) {
	key, ours, good := farGateway(t)
	var held []net.Conn
	silent := listen(t, func(conn net.Conn) { held = append(held, conn) }).Port() // as a firewall that drops
	near := carrier.New(carrier.Options{Log: logr.Discard()})
	defer near.Close()
	opened := make(chan struct{}, 1)
	s := newStreams(near, logr.Discard(), func() { opened <- struct{}{} })
	if err := s.setKeys(ours, []carrier.Key{key}); err != nil {
		t.Fatal(err)
	}
	to := func(kind transport.Kind, port uint16) transport.Target {
		return transport.Target{Kind: kind, Host: "127.0.0.1", Port: port, Path: map[transport.Kind]string{transport.WebSocket: carrier.PathOf(0)}[kind]}
	}
	s.want(way{key: key, targets: []transport.Target{to(transport.TLS, silent), to(transport.WebSocket, good)}})
	<-opened
	if info, ok := near.Stream(key); !ok || info.Kind != transport.WebSocket {
		t.Errorf("the stream is %+v", info)
	}
	s.drop(key)
	s.want(way{key: key, targets: []transport.Target{to(transport.TLS, silent)}})
	s.want(way{key: key, targets: []transport.Target{to(transport.TLS, silent), to(transport.TLS, good)}}) // it has moved
	<-opened
	if info, ok := near.Stream(key); !ok || info.Kind != transport.TLS {
		t.Errorf("the stream is %+v", info)
	}
}

// TestWayTo: the first address of each kind comes first; addresses of this cluster and the loopback are left out.
func TestWayTo(t *testing.T) {
	s := newStreams(carrier.New(carrier.Options{Log: logr.Discard()}), logr.Discard(), func() {})
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	var endpoints []agent.Endpoint
	for _, kind := range []string{"UDP", "TLS", "WebSocket"} {
		for _, host := range []string{"192.0.2.1", "192.0.2.2", "127.0.0.1", "10.9.0.1", "example.com"} {
			endpoints = append(endpoints, agent.Endpoint{
				Kind: kind, Host: host, Port: 443, Path: map[string]string{"WebSocket": "/x"}[kind], Plain: kind == "WebSocket",
			})
		}
	}
	w, is := s.wayTo(key, endpoints, carriers.OffLimits{Remote: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}})
	var got []string
	for _, one := range w.targets {
		got = append(got, one.String())
	}
	want := "tls://192.0.2.1:443 ws://192.0.2.1:443/x tls://192.0.2.2:443 ws://192.0.2.2:443/x tls://example.com:443 ws://example.com:443/x"
	if text := strings.Join(got, " "); !is || text != want {
		t.Errorf("%v: %s", is, text)
	}
}

// TestWhyNot: the reason names what was tried.
func TestWhyNot(t *testing.T) {
	s := newStreams(carrier.New(carrier.Options{Log: logr.Discard()}), logr.Discard(), func() {})
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	udp, tls := agent.Endpoint{Kind: "UDP", Host: "192.0.2.1", Port: 5871}, agent.Endpoint{Kind: "TLS", Host: "192.0.2.1", Port: 443}
	refused := listen(t, func(conn net.Conn) { _ = conn.Close() })
	for _, test := range []struct {
		kind      string
		endpoints []agent.Endpoint
		dialled   bool
		want      string
	}{
		{"UDP", []agent.Endpoint{udp, tls}, false, ""},
		{"", []agent.Endpoint{udp}, false, ""},
		{"TLS", []agent.Endpoint{udp, tls}, false, "UDP: 192.0.2.1:5871 did not answer; it is tried every 20s"},
		{"TLS", []agent.Endpoint{tls}, false, "UDP: the peer announces no address that this cluster can dial"},
		{"WebSocket", []agent.Endpoint{udp}, false, "UDP: 192.0.2.1:5871 did not answer; it is tried every 20s; TLS: the peer announces no address"},
		{"WebSocket", []agent.Endpoint{udp, tls}, true, "UDP: 192.0.2.1:5871 did not answer; it is tried every 20s; TLS: dial tls://" + refused.String() + ": TLS: "},
	} {
		if test.dialled {
			if err := s.setKeys(carrier.Key{1}, []carrier.Key{{9}}); err != nil {
				t.Fatal(err)
			}
			err := s.hub.Dial(t.Context(), carrier.Key{9}, transport.Target{Kind: transport.TLS, Host: refused.Addr().String(), Port: refused.Port()})
			s.record(t.Context(), carrier.Key{}, transport.TLS, err)
		}
		if got := s.whyNot(key, test.kind, test.endpoints); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || strings.Contains(got, "->") {
			t.Errorf("%s: %q, want %q", test.kind, got, test.want)
		}
	}
}
