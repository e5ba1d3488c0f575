// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// TestManyConnections: thousands of connections that send nothing disturb no stream, and keep no peer out, even one with the same address: load balancers and
// node ports may hide the addresses of all clients.
func TestManyConnections(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]))
	pings(t, a, b)
	var crowd net.Dialer // from the address of the peer
	const most = 10_000
	for i := range most {
		conn, err := crowd.Dial("tcp", b.at.String())
		if err != nil {
			break // no ports left
		}
		defer conn.Close()
		if i%1000 == 0 {
			pings(t, a, b)
			pings(t, b, a)
		}
	}
	a.hub.Hangup(b.public)
	eventually(t, "it ended", func() bool { _, is := b.hub.Stream(a.public); return !is })
	must(t, a.hub.Dial(t.Context(), b.public, targets(b, nil)["WebSocket"]))
	pings(t, a, b)
}

// TestWaitingMemory: a connection that proves nothing costs little memory, however far it goes, as there may be maxWaiting of them at any time. The
// bound is for both its ends, since this process has both.
func TestWaitingMemory(t *testing.T) {
	const most = transport.ReadSize / 2 // bytes: less than reading ahead would take
	header := "GET /liqo HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeader/2)
	upgrade := "GET /liqo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
	reads := func(t *testing.T, from io.Reader, bytes int) {
		_, err := io.ReadFull(from, make([]byte, bytes))
		must(t, err)
	}
	secure := func(t *testing.T, conn net.Conn, protocol string) net.Conn {
		client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		must(t, client.HandshakeContext(t.Context()))
		return client
	}
	for name, enter := range map[string]func(*testing.T, net.Conn){
		"silent":                     func(*testing.T, net.Conn) {},
		"a record of TLS in part":    func(t *testing.T, conn net.Conn) { send(t, conn, "\x16\x03\x01\x40\x00") },
		"a header in part":           func(t *testing.T, conn net.Conn) { send(t, conn, header) },
		"a header in part, over TLS": func(t *testing.T, conn net.Conn) { send(t, secure(t, conn, "http/1.1"), header) },
		"asked for proof, TLS":       func(t *testing.T, conn net.Conn) { reads(t, secure(t, conn, transport.Protocol), nonceSize) },
		"asked for proof, WebSocket": func(t *testing.T, conn net.Conn) {
			send(t, conn, upgrade)
			from := bufio.NewReaderSize(conn, 16)
			_, err := http.ReadResponse(from, nil)
			must(t, err)
			reads(t, from, 2+nonceSize) // a frame
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, 1, false)
			must(t, g.hub.SetKeys(g.private, nil))
			const count = 16 // few, as each is closed after helloTime
			var before uint64
			for i := range count {
				if i == 1 { // the first one has made what all share
					before = inUse()
				}
				conn, err := net.Dial("tcp", g.at.String())
				must(t, err)
				defer conn.Close()
				enter(t, conn)
			}
			more := int64(inUse() - before)
			there := int64(g.server.waiting().Guests())
			if there < 2 || more/(there-1) > most {
				t.Errorf("%d bytes for %d connections, at most %d for each", more, there-1, most)
			}
		})
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	must(t, err)
}

// inUse is the memory of objects and stacks, in bytes.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what pools held
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// arrived is a connection from an address, of which only the end is of interest.
type arrived struct {
	net.Conn
	from  netip.Addr
	ended bool
}

func (a *arrived) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.from, 1))
}

func (a *arrived) Close() error {
	a.ended = true
	return nil
}

// TestAttackNL1: a client that opens as many connections as may wait, from as many addresses, keeps no peer out: one of its own ends for each that comes. All
// addresses of a /64 count as one.
func TestAttackNL1(t *testing.T) {
	for name, test := range map[string]struct {
		crowd func(i int) netip.Addr
		size  int
	}{
		"as many addresses":       {func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }, maxWaiting},
		"one address":             {func(int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, 1}) }, 2 * maxWaiting},
		"as many of a /64 of six": {func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 14: byte(i >> 8), 15: byte(i)}) }, maxWaitingEach + 1},
	} {
		t.Run(name, func(t *testing.T) {
			waiting := newPlaces()
			all := make([]*arrived, test.size)
			for i := range all {
				all[i] = &arrived{from: test.crowd(i)}
				waiting.Enter(all[i])
			}
			peer := &arrived{from: netip.MustParseAddr("192.0.2.1")}
			waiting.Enter(peer)
			if peer.ended || !all[0].ended || all[len(all)-1].ended {
				t.Errorf("ended: the peer %t, the oldest of the crowd %t, its newest %t", peer.ended, all[0].ended, all[len(all)-1].ended)
			}
		})
	}
}

// TestLeaks: connections that come to nothing and streams that ended leave no goroutine.
func TestLeaks(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	turn := func() {
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "GET /liqo HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n", "\x16\x03\x01"} {
			conn, err := net.Dial("tcp", b.at.String())
			must(t, err)
			_, _ = conn.Write([]byte(text)) // it may be closed meanwhile
			conn.Close()
		}
		for name, target := range targets(b, nil) {
			forgetHowOften(b)
			if target.Proxy != nil {
				continue
			}
			if err := a.hub.Dial(t.Context(), b.public, target); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a.hub.Hangup(b.public)
		}
		eventually(t, "both ends are done", func() bool {
			_, is := b.hub.Stream(a.public)
			return !is
		})
	}
	turn()
	before := runtime.NumGoroutine()
	for range 20 {
		turn()
	}
	eventually(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// TestTooOften: a peer that opens one stream after the other is slowed, and has one again later.
func TestTooOften(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	var err error
	for range 2 * admitBurst {
		a.hub.Hangup(b.public)
		if err = a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "does not admit") {
		t.Fatalf("the last stream: %v", err)
	}
	eventually(t, "it is admitted again", func() bool { return a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]) == nil })
	pings(t, a, b)
}

// TestCrossed: if both ends dial at the same time, both keep the same stream.
func TestCrossed(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	for range 4 {
		done := make(chan error, 2)
		go func() { done <- a.hub.Dial(t.Context(), b.public, targets(b, nil)["TLS"]) }()
		go func() { done <- b.hub.Dial(t.Context(), a.public, targets(a, nil)["TLS"]) }()
		for range 2 {
			if err := <-done; err != nil && !strings.Contains(err.Error(), "does not admit") {
				t.Fatal(err)
			}
		}
		eventually(t, "one stream at both ends", func() bool {
			here, is := a.hub.Stream(b.public)
			there, isThere := b.hub.Stream(a.public)
			return is && isThere && here.Dialled != there.Dialled
		})
		pings(t, a, b)
		pings(t, b, a)
		a.hub.Hangup(b.public)
		eventually(t, "it ended", func() bool { _, is := b.hub.Stream(a.public); return !is })
		forgetHowOften(a, b)
	}
}

// forgetHowOften lets peers open streams again at once. Their addresses stay: WireGuard sends to where a packet came from last, which may be on its way yet.
func forgetHowOften(all ...*gateway) {
	for _, one := range all {
		one.hub.mu.Lock()
		for _, known := range one.hub.members {
			known.admit = rate.NewLimiter(rate.Every(admitPause), admitBurst)
		}
		one.hub.mu.Unlock()
	}
}

// TestAddresses: no two peers have the same address, whatever keys they choose, and an address is that of a stream.
func TestAddresses(t *testing.T) {
	hub := New(Options{Log: logr.Discard()})
	seen := map[netip.AddrPort]Key{}
	for i := range 70_000 {
		peer := Key{byte(i), byte(i >> 8), byte(i >> 16)}
		at := hub.AddressOf(peer)
		if other, ok := seen[at]; ok || !isStream(at.Addr()) || at.Port() != Port || hub.AddressOf(peer) != at {
			t.Fatalf("%v has %s, as %v", peer, at, other)
		}
		seen[at] = peer
	}
}

// TestNextLimit: the queue shrinks to what is sent in its time as soon as a write takes longer, and grows while all is fast and something is dropped.
func TestNextLimit(t *testing.T) {
	for name, test := range map[string]struct {
		limit, size int
		took        time.Duration
		full        bool
		want        int
	}{
		"first write on a slow path": {firstQueue, 200 << 10, 200 * time.Millisecond, true, minQueue},
		"path of 80 Mbit/s":          {firstQueue, 250_000, 25 * time.Millisecond, true, 200_000},
		"one small write that waits": {firstQueue, 100, 40 * time.Millisecond, false, minQueue},
		"fast, nothing dropped":      {firstQueue, 200 << 10, time.Millisecond, false, firstQueue},
		"fast, dropped":              {firstQueue, 200 << 10, time.Millisecond, true, 2 * firstQueue},
		"as fast as it may be":       {maxQueue, maxQueue, time.Millisecond, true, maxQueue},
		"just right":                 {200_000, 200_000, 19 * time.Millisecond, true, 200_000},
	} {
		if got := nextLimit(test.limit, test.size, test.took, test.full); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestSilence: a stream that stops, as behind a NAT router that has forgotten it, is given up within seconds, one on a path of 100 kbit/s is not.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		quiet := newStream(near, near, netip.AddrPort{}, Info{}, &Totals{})
		go quiet.write()
		go quiet.read(func(netip.AddrPort, [][]byte) {})
		from := time.Now()
		<-quiet.closed
		if took := time.Since(from); took > transport.Silence || quiet.cause != errSilent { //nolint:errorlint // it is this very value
			t.Errorf("given up after %v: %v", took, quiet.cause)
		}
		far.Close()
		near, far = net.Pipe()
		defer far.Close()
		slowly := newStream(&slow{near, 12_500}, near, netip.AddrPort{}, Info{}, &Totals{})
		go slowly.write()
		defer func() {
			slowly.close(errHangup)
			<-time.After(time.Minute) // of the bubble: its writer ends
		}()
		go func() {
			buffer := make([]byte, 1<<16)
			for {
				if _, err := far.Read(buffer); err != nil {
					return
				}
			}
		}()
		datagram := make([]byte, 1400)
		for range 1000 {
			slowly.send([][]byte{datagram})
			select {
			case <-slowly.closed:
				t.Fatalf("closed: %v", slowly.cause)
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// FuzzUnauthenticated: no bytes of a client without a key make a stream, and each connection ends.
func FuzzUnauthenticated(f *testing.F) {
	proof := strings.Repeat("p", proofSize)
	f.Add([]byte("GET /liqo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "+
		"13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n\x82\xa0\x00\x00\x00\x00"+proof), 3)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 1)
	f.Add([]byte("\x16\x03\x01\x00\x05hello"), 2)
	f.Add([]byte{}, 0)
	keys := make([]wgtypes.Key, 2)
	for i := range keys {
		var err error
		keys[i], err = wgtypes.GeneratePrivateKey()
		must(f, err)
	}
	own, err := selfSigned(time.Now())
	must(f, err)
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil }
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		hub := New(Options{Log: logr.Discard()})
		must(t, hub.SetKeys(Key(keys[0]), []Key{Key(keys[1].PublicKey())}))
		near, far := net.Pipe()
		server := &Server{Hub: hub, Path: isTest, Log: logr.Discard(), Certificate: certificate}
		go func() {
			go func() { _, _ = new(bytes.Buffer).ReadFrom(far) }()
			cut = min(max(cut, 0), len(text))
			_, _ = far.Write(text[:cut]) // it may be closed meanwhile
			_, _ = far.Write(text[cut:])
			_ = far.Close()
		}()
		if err := server.receive(context.Background(), near); err == nil {
			t.Error("admitted")
		}
		_ = near.Close()
		if _, ok := hub.Stream(Key(keys[1].PublicKey())); ok {
			t.Error("there is a stream")
		}
	})
}

// FuzzIntroduce: whatever answers in place of a peer's gateway, the client reports an error or has a stream, and does not panic.
func FuzzIntroduce(f *testing.F) {
	f.Add(append(make([]byte, nonceSize), 0, 0))
	f.Add(append(make([]byte, nonceSize), 1, 0))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	private, err := wgtypes.GeneratePrivateKey()
	must(f, err)
	other, err := wgtypes.GeneratePrivateKey()
	must(f, err)
	ring, err := newKeyring(Key(private), []Key{Key(other.PublicKey())})
	must(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		near, far := net.Pipe()
		go func() {
			go func() { _, _ = new(bytes.Buffer).ReadFrom(far) }()
			_, _ = far.Write(text)
			_ = far.Close()
		}()
		err := ring.introduce(near, Key(other.PublicKey()))
		_ = near.Close()
		if want := len(text) >= nonceSize+transport.HeaderSize && text[nonceSize] == 0 && text[nonceSize+1] == 0; want != (err == nil) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
		if err != nil && strings.Contains(err.Error(), fmt.Sprintf("%x", private[:])) {
			t.Error("a key in an error")
		}
	})
}

// TestProxyFrom: the files of a mounted Secret are read at each attempt, and no error shows what is in them.
func TestProxyFrom(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)) }
	at := transport.ProxyFrom(folder)
	if _, err := at("gw.example.org:443"); !errors.Is(err, transport.ErrNoProxy) {
		t.Errorf("without a key: %v", err)
	}
	write("HTTPS_PROXY", "http://rome:a%20password@proxy.example.org:3128\n")
	write("NO_PROXY", "near.example.org,10.0.0.0/8\n")
	if proxy, err := at("gw.example.org:443"); err != nil || proxy.Host != "proxy.example.org:3128" || proxy.User.String() != "rome:a%20password" {
		t.Errorf("the proxy is %v, %v", proxy, err)
	}
	for _, near := range []string{"near.example.org:443", "10.1.2.3:443"} {
		if proxy, err := at(near); err != nil || proxy != nil {
			t.Errorf("%s: %v, %v", near, proxy, err)
		}
	}
	write("HTTPS_PROXY", "http://rome:a password@proxy")
	_, _, err := transport.Connect(t.Context(), transport.Target{Kind: transport.TLS, Host: "gw.example.org", Port: 443, Proxy: at})
	if err == nil || strings.Contains(err.Error(), "password") {
		t.Errorf("no URL: %v", err)
	}
	t.Setenv("HTTPS_PROXY", "http://other.example.org")
	if proxy, err := transport.ProxyFrom("")("gw.example.org:443"); err != nil || proxy.Host != "other.example.org" {
		t.Errorf("from the variables: %v, %v", proxy, err)
	}
}
