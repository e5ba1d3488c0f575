// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/base64"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
)

// TestShift: a tunnel over a stream tries the UDP addresses in turn, not too often, and notices where WireGuard has moved.
func TestShift(t *testing.T) {
	var d shift
	stream := netip.MustParseAddrPort("127.64.0.1:2000")
	var tried []string
	for at := time.Duration(0); at < time.Minute; at += s {
		if moved, try := d.step(start.Add(at), []netip.AddrPort{a, b}, stream); moved.IsValid() {
			t.Fatalf("moved to %s", moved)
		} else if try.IsValid() {
			tried = append(tried, at.String()+" "+try.String())
		}
	}
	if len(tried) != 2 || tried[0] != "20s "+a.String() || tried[1] != "40s "+b.String() {
		t.Errorf("tried %v", tried)
	}
	if moved, _ := d.step(start.Add(time.Minute), []netip.AddrPort{a, b}, b); moved != b {
		t.Errorf("moved to %v, want %s", moved, b)
	}
	if moved, try := d.step(start.Add(time.Hour), nil, stream); moved.IsValid() || try.IsValid() {
		t.Errorf("without UDP: %v, %v", moved, try)
	}
}

// TestCarry drives one gateway whose peer answers over TLS only, then also over UDP.
func TestCarry(t *testing.T) {
	theirs, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	peerKey := carrier.Key(theirs.PublicKey())
	far := carrier.New(carrier.Options{Log: logr.Discard()})
	defer far.Close()
	if err := far.SetKeys(carrier.Key(theirs), []carrier.Key{carrier.Key(ours.PublicKey())}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = (&carrier.Server{Hub: far, Path: carrier.PathOf(0), Log: logr.Discard()}).Serve(t.Context(), listener)
	}()

	g := newBare()
	g.resolver = &resolver{}
	g.tunnel = map[string]host.TunnelPeer{}
	if err := g.streams.setKeys(carrier.Key(ours), []carrier.Key{peerKey}); err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	known, key := &peer{dialer: *newDialer()}, base64.StdEncoding.EncodeToString(peerKey[:])
	l := laneInputs{elsewhere: func(string) bool { return false }, endpoints: []agent.Endpoint{
		{Kind: "UDP", Host: a.Addr().String(), Port: a.Port()}, {Kind: "UDP", Host: b.Addr().String(), Port: b.Port()}, {Kind: "TLS", Host: "127.0.0.1", Port: port},
	}}
	stream := carrier.AddressOf(peerKey)
	step := func(at time.Duration) netip.AddrPort {
		lane := &plan.PeerLane{Keys: []string{key}}
		g.observeLane(start.Add(at), known, lane, l)
		return lane.Endpoint
	}
	// The loopback is refused as the address of a peer, so this way is added below.
	if first := step(0); first != a {
		t.Fatalf("first it dials %s", first)
	}
	if _, is := g.streams.wayTo(key, l.endpoints, l.off); is {
		t.Fatal("a stream to this host is dialled")
	}
	w := way{key: peerKey, targets: []carrier.Target{{Kind: carrier.TLS, Host: "127.0.0.1", Port: port}}}
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
	at := 3 * s
	for ; at < 10*s && step(at) != stream; at += 100 * ms {
	}
	if at > 5*s {
		t.Errorf("it uses the stream after %v", at)
	}
	g.tunnel[key] = host.TunnelPeer{Endpoint: stream}
	l.result = probe.Result{Status: probe.Status{Last: start.Add(at), Timeout: s}}
	for end := at + tryEvery + 2*s; at < end; at += s {
		l.result.Last = start.Add(at)
		if now := step(at); now != stream {
			t.Fatalf("at %v it uses %s", at, now)
		}
	}
	dials := known.dialer.dial
	g.tunnel[key] = host.TunnelPeer{Endpoint: a} // a copy has arrived there
	l.result.Last = start.Add(at)
	if now := step(at); now != a || known.dialer.dial != dials {
		t.Errorf("it uses %s, after %d more attempts", now, known.dialer.dial-dials)
	}
	for end := at + 2*spareFor; at < end; at += s {
		l.result.Last = start.Add(at)
		step(at)
	}
	until(false)
}
