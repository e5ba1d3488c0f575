// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// inTime is a guard against hanging, not a target.
const inTime = 20 * time.Second

func isTest(path string) bool { return path == "/liqo" }

// gateway is a WireGuard device with a hub. Its packets go to and come from channels.
type gateway struct {
	t       testing.TB
	private Key
	public  Key
	address netip.Addr
	hub     *Hub
	server  *Server
	tun     *tuntest.ChannelTUN
	device  *device.Device
	udp     uint16
	// at is where it accepts streams.
	at netip.AddrPort
}

func newGateway(t testing.TB, number byte, relayed bool) *gateway {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	must(t, err)
	g := &gateway{
		t: t, private: Key(key), public: Key(key.PublicKey()), address: netip.AddrFrom4([4]byte{10, 9, 0, number}),
		hub: New(Options{Log: logr.Discard()}), tun: tuntest.NewChannelTUN(),
	}
	network := conn.NewDefaultBind()
	if !relayed {
		network = NewBind(network, g.hub)
	}
	g.device = device.NewDevice(g.tun.TUN(), network, device.NewLogger(device.LogLevelSilent, ""))
	must(t, g.device.Up())
	config, err := g.device.IpcGet()
	must(t, err)
	_, err = fmt.Sscanf(config[strings.Index(config, "listen_port="):], "listen_port=%d", &g.udp)
	must(t, err)
	must(t, g.device.IpcSet("private_key="+hex.EncodeToString(g.private[:])+"\n"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g.at = netip.MustParseAddrPort(listener.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	g.server = &Server{Hub: g.hub, Path: isTest, Log: logr.Discard()}
	ended := make(chan error, 1)
	go func() { ended <- g.server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		g.device.Close()
		g.hub.Close()
		must(t, <-ended)
	})
	return g
}

// meet makes two gateways peers that reach each other at the address of their stream.
func meet(a, b *gateway) {
	for _, pair := range [][2]*gateway{{a, b}, {b, a}} {
		own, peer := pair[0], pair[1]
		must(own.t, own.hub.SetKeys(own.private, []Key{peer.public}))
		must(own.t, own.device.IpcSet(fmt.Sprintf(
			"public_key=%s\nendpoint=%s\nallowed_ip=%s/32\n", hex.EncodeToString(peer.public[:]), own.hub.AddressOf(peer.public), peer.address,
		)))
	}
}

// pinged counts calls of pings.
var pinged atomic.Uint32

// pings sends a packet from a to b until one arrives. Each call has a packet of its own, as more of an earlier one may arrive.
func pings(t testing.TB, a, b *gateway) {
	t.Helper()
	packet := tuntest.Ping(b.address, a.address)
	binary.BigEndian.PutUint32(packet[len(packet)-4:], pinged.Add(1))
	deadline := time.After(inTime)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-deadline:
			t.Fatal("no packet arrives")
		case a.tun.Outbound <- packet:
		}
		select {
		case got := <-b.tun.Inbound:
			if bytes.Equal(got, packet) {
				return
			}
		case <-again.C:
		}
	}
}

// endpoint is where a gateway sends what is for its peer.
func (g *gateway) endpoint() string {
	config, err := g.device.IpcGet()
	must(g.t, err)
	for line := range strings.Lines(config) {
		if value, ok := strings.CutPrefix(line, "endpoint="); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(inTime)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// targets are the ways to a gateway.
func targets(g *gateway, proxy *url.URL) map[string]transport.Target {
	through := func(string) (*url.URL, error) { return proxy, nil }
	host, port := g.at.Addr().String(), g.at.Port()
	return map[string]transport.Target{
		"TLS":                      {Kind: transport.TLS, Host: host, Port: port},
		"WebSocket":                {Kind: transport.WebSocket, Host: host, Port: port, Path: "/liqo"},
		"WebSocket without TLS":    {Kind: transport.WebSocket, Host: host, Port: port, Path: "/liqo", Plain: true},
		"TLS, proxy":               {Kind: transport.TLS, Host: host, Port: port, Proxy: through},
		"WebSocket, proxy":         {Kind: transport.WebSocket, Host: host, Port: port, Path: "/liqo", Proxy: through},
		"WebSocket, proxy, no TLS": {Kind: transport.WebSocket, Host: host, Port: port, Path: "/liqo", Plain: true, Proxy: through},
	}
}

// TestWays: packets pass over every kind of stream, in both directions, and again after the stream was interrupted.
func TestWays(t *testing.T) {
	proxy := newProxy(t, "rome", "the password")
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	for name, target := range targets(b, proxy) {
		t.Run(name, func(t *testing.T) {
			must(t, a.hub.Dial(t.Context(), b.public, target))
			pings(t, a, b)
			pings(t, b, a)
			info, is := b.hub.Stream(a.public)
			if !is || info.Kind != target.Kind || info.Dialled {
				t.Errorf("the other end has %+v", info)
			}
			a.hub.Hangup(b.public)
			eventually(t, "both ends see that it ended", func() bool {
				_, here := a.hub.Stream(b.public)
				_, there := b.hub.Stream(a.public)
				return !here && !there
			})
		})
	}
}

// TestLasts: a stream of every kind is there after the time that its opening may take.
func TestLasts(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, "rome", "the password")
	a := newGateway(t, 1, false)
	keys, ends := []Key{}, map[string]*gateway{}
	for name := range targets(a, proxy) {
		b := newGateway(t, byte(2+len(ends)), false)
		must(t, b.hub.SetKeys(b.private, []Key{a.public}))
		ends[name], keys = b, append(keys, b.public)
	}
	must(t, a.hub.SetKeys(a.private, keys))
	opened := map[string]Info{}
	for name, b := range ends {
		must(t, a.hub.Dial(t.Context(), b.public, targets(b, proxy)[name]))
		opened[name], _ = a.hub.Stream(b.public)
	}
	<-time.After(transport.HelloTime + transport.HelloTime/5) // the subject of the test
	for name, b := range ends {
		if now, ok := a.hub.Stream(b.public); !ok || now != opened[name] {
			t.Errorf("%s: %+v, was %+v", name, now, opened[name])
		}
	}
}

// relayedPair are two gateways with devices that only know UDP, as those of the kernel, and their relays.
func relayedPair(t testing.TB) (a, b *gateway) {
	t.Helper()
	a, b = newGateway(t, 1, true), newGateway(t, 2, true)
	for _, pair := range [][2]*gateway{{a, b}, {b, a}} {
		relay, err := NewRelay(pair[0].hub, pair[0].udp)
		must(t, err)
		t.Cleanup(relay.Close)
		must(t, relay.Keep([]Key{pair[1].public}))
	}
	meet(a, b)
	return a, b
}

// TestRelay: the same with devices that only know UDP.
func TestRelay(t *testing.T) {
	a, b := relayedPair(t)
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
	pings(t, b, a)
}

// TestRelayedTry: a device of the kernel does not see the copies and what comes back to them. The relay hands it over, so that nothing is lost, and
// reports that UDP works. The endpoint of the device stays until it is changed.
func TestRelayedTry(t *testing.T) {
	a, b := relayedPair(t)
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
	pings(t, b, a)
	if udp, ok := a.hub.Passed(b.public); ok {
		t.Fatalf("%s passed before it was tried", udp)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.udp)
	a.hub.Try(b.public, at, time.Now().Add(inTime))
	eventually(t, "packets come back over UDP", func() bool {
		pings(t, a, b)
		pings(t, b, a)
		udp, is := a.hub.Passed(b.public)
		return is && udp == at
	})
	if now := a.endpoint(); now != a.hub.AddressOf(b.public).String() {
		t.Errorf("the device sends to %s", now)
	}
	a.hub.Abandon(b.public)
	if udp, ok := a.hub.Passed(b.public); ok {
		t.Errorf("%s passed, and was given up since", udp)
	}
	must(t, a.device.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\nendpoint=%s\n", hex.EncodeToString(b.public[:]), at)))
	a.hub.Hangup(b.public)
	pings(t, a, b)
	pings(t, b, a)
}

// TestRelayForgets: the sockets of peers that are gone are closed, and an address that cannot be opened takes none from others.
func TestRelayForgets(t *testing.T) {
	hub := New(Options{Log: logr.Discard()})
	relay, err := NewRelay(hub, 1)
	must(t, err)
	defer relay.Close()
	taken, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(hub.AddressOf(Key{1})))
	must(t, err)
	if err := relay.Keep([]Key{{1}, {2}}); err == nil || len(relay.sockets) != 1 {
		t.Errorf("%d sockets, %v", len(relay.sockets), err)
	}
	taken.Close()
	must(t, relay.Keep([]Key{{1}, {2}}))
	must(t, relay.Keep([]Key{{2}}))
	if at := hub.AddressOf(Key{2}); len(relay.sockets) != 1 || relay.sockets[at] == nil {
		t.Errorf("sockets %v", relay.sockets)
	}
}

// TestTry: while a stream is in use, copies over UDP move both ends to UDP, and a UDP address where no gateway answers changes nothing.
func TestTry(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
	pings(t, b, a)
	unused, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	defer unused.Close()
	a.hub.Try(b.public, netip.MustParseAddrPort(unused.LocalAddr().String()), time.Now().Add(inTime))
	pings(t, a, b)
	pings(t, b, a)
	if at := a.endpoint(); at != a.hub.AddressOf(b.public).String() {
		t.Errorf("moved to %s, where no gateway answers", at)
	}
	udp := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.udp)
	a.hub.Try(b.public, udp, time.Now().Add(inTime))
	eventually(t, "both ends use UDP", func() bool {
		pings(t, a, b)
		pings(t, b, a)
		return a.endpoint() == udp.String() && strings.HasPrefix(b.endpoint(), "127.0.0.1:")
	})
	a.hub.Hangup(b.public)
	pings(t, a, b)
	pings(t, b, a)
}

// TestReopened: the device may close and open its network, as it does when its port changes, and the streams stay.
func TestReopened(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
	for range 5 {
		must(t, b.device.IpcSet("listen_port=0\n"))
		pings(t, a, b)
		pings(t, b, a)
	}
}

// TestReplaced: a stream that the peer opens again, because it believes that the old one is dead, replaces that.
func TestReplaced(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	second := New(Options{Log: logr.Discard()})
	defer second.Close()
	must(t, second.SetKeys(a.private, []Key{b.public}))
	must(t, second.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["WebSocket"]))
	eventually(t, "the old one ends", func() bool { _, is := second.Stream(b.public); return !is })
	pings(t, a, b)
	pings(t, b, a)
	must(t, b.hub.SetKeys(b.private, nil)) // no peer any more
	eventually(t, "the stream of a former peer ends", func() bool { _, is := a.hub.Stream(b.public); return !is })
	if err := a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]); err == nil || !strings.Contains(err.Error(), "does not admit") {
		t.Errorf("a former peer: %v", err)
	}
}

// TestRefusals: why a way does not work, in words, without the password of a proxy.
func TestRefusals(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	proxy := newProxy(t, "rome", "the password")
	wrong := *proxy
	wrong.User = url.UserPassword("rome", "a wrong password")
	web, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(web) }()
	defer server.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	unused := netip.MustParseAddrPort(closed.Addr().String())
	closed.Close()
	another := netip.MustParseAddrPort(web.Addr().String())
	to := func(at netip.AddrPort, kind transport.Kind, plain bool, proxy *url.URL) transport.Target {
		return transport.Target{
			Kind: kind, Host: at.Addr().String(), Port: at.Port(), Path: map[bool]string{true: "/liqo"}[kind == transport.WebSocket], Plain: plain,
			Proxy: func(string) (*url.URL, error) { return proxy, nil },
		}
	}
	for name, test := range map[string]struct {
		target transport.Target
		want   string
	}{
		"unused":       {to(unused, transport.TLS, false, nil), "refused"},
		"no TLS there": {to(another, transport.TLS, false, nil), "TLS"},
		"another site": {to(another, transport.WebSocket, true, nil), "HTTP status 404"},
		"wrong path": {
			transport.Target{Kind: transport.WebSocket, Host: b.at.Addr().String(), Port: b.at.Port(), Path: "/other", Plain: true},
			"HTTP status 404",
		},
		"proxy: refused": {to(b.at, transport.TLS, false, &wrong), "407"},
	} {
		err := a.hub.Dial(t.Context(), b.public, test.target)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// newProxy is an HTTP proxy that wants a password and only knows CONNECT.
func newProxy(t *testing.T, user, password string) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != want {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		out, err := net.Dial("tcp", r.Host)
		if err != nil || r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		in, rest, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(out, rest); _ = out.Close() }()
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return &url.URL{Scheme: "http", Host: listener.Addr().String(), User: url.UserPassword(user, password)}
}

// TestUnauthenticated: who has no key of a peer gets no stream, whatever is sent, and is gone within seconds.
func TestUnauthenticated(t *testing.T) {
	a, b, thief := newGateway(t, 1, false), newGateway(t, 2, false), newGateway(t, 3, false)
	meet(a, b)
	must(t, thief.hub.SetKeys(thief.private, []Key{b.public}))
	for name, target := range targets(b, nil) {
		if target.Proxy != nil {
			continue
		}
		if err := thief.hub.Dial(t.Context(), b.public, target); err == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	for name, text := range map[string][]byte{
		"noise": noise, "HTTP": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "nothing": nil, "half a request": []byte("GET /liqo HTT"),
		"many headers": []byte("GET /liqo HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 1<<16)),
		"TLS noise":    append([]byte{0x16, 3, 1}, noise[:1000]...),
	} {
		conn, err := net.Dial("tcp", b.at.String())
		must(t, err)
		_, _ = conn.Write(text) // it may be closed meanwhile
		_ = conn.SetReadDeadline(time.Now().Add(2 * transport.HelloTime))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection stays open", name)
		}
		conn.Close()
	}
	if _, ok := b.hub.Stream(thief.public); ok {
		t.Error("the thief has a stream")
	}
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
}
