// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// all reads every datagram of a stream.
func all(from io.Reader) (got [][]byte, err error) {
	reader := &transport.Frames{From: from}
	for {
		batch, err := reader.Next()
		for _, one := range batch {
			got = append(got, slices.Clone(one))
		}
		if err != nil {
			return got, err
		}
	}
}

// TestFrames: datagrams arrive as they were sent, however the stream cuts them.
func TestFrames(t *testing.T) {
	sent := [][]byte{{1}, bytes.Repeat([]byte{2}, 1400), bytes.Repeat([]byte{3}, transport.MaxDatagram), {4, 4}}
	var text []byte
	for _, one := range sent {
		text = transport.AppendFrame(transport.AppendFrame(text, nil), one)
	}
	for name, reader := range map[string]io.Reader{
		"at once": bytes.NewReader(text), "byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
		"halves": iotest.HalfReader(bytes.NewReader(text)),
	} {
		if got, err := all(reader); !errors.Is(err, io.EOF) || !slices.EqualFunc(got, sent, bytes.Equal) {
			t.Errorf("%s: %d datagrams, %v", name, len(got), err)
		}
	}
	if _, err := all(bytes.NewReader([]byte{0xff, 0xff, 1})); !errors.Is(err, transport.ErrFrame) {
		t.Errorf("too large: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 1, 7, 0, 0, 0, 2, 8, 9}, 3)
	f.Add([]byte{0xff, 0xff}, 1)
	f.Add([]byte{0, 1, '0', 0xff, 0xff}, 3) // what came before the wrong frame arrives
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		whole, wholeErr := all(bytes.NewReader(text))
		cut = min(max(cut, 0), len(text))
		parts, partsErr := all(io.MultiReader(bytes.NewReader(text[:cut]), bytes.NewReader(text[cut:])))
		if !slices.EqualFunc(whole, parts, bytes.Equal) || errors.Is(wholeErr, transport.ErrFrame) != errors.Is(partsErr, transport.ErrFrame) {
			t.Errorf("%d datagrams (%v), cut %d (%v)", len(whole), wholeErr, len(parts), partsErr)
		}
	})
}

// TestProof: a proof holds for one direction, one pair and one nonce.
func TestProof(t *testing.T) {
	keys := make([]wgtypes.Key, 3)
	for i := range keys {
		var err error
		keys[i], err = wgtypes.GeneratePrivateKey()
		must(t, err)
	}
	ring := func(own int, peers ...int) *keyring {
		var others []Key
		for _, one := range peers {
			others = append(others, Key(keys[one].PublicKey()))
		}
		made, err := newKeyring(Key(keys[own]), others)
		must(t, err)
		return made
	}
	a, b := ring(0, 1, 2), ring(1, 0, 2)
	public := func(i int) Key { return Key(keys[i].PublicKey()) }
	if !bytes.Equal(a.dials[public(1)], b.accepts[public(0)]) {
		t.Error("the two ends have different keys")
	}
	if bytes.Equal(a.dials[public(1)], b.dials[public(0)]) || bytes.Equal(a.dials[public(1)], a.dials[public(2)]) {
		t.Error("a proof can be sent back, or to another peer")
	}
	if bytes.Equal(proofOf(a.dials[public(1)], []byte("1")), proofOf(a.dials[public(1)], []byte("2"))) {
		t.Error("a proof can be sent again")
	}
	if made, err := newKeyring(Key(keys[0]), []Key{{}}); err != nil || len(made.accepts) != 0 { // the key zero: everyone knows what it shares
		t.Errorf("a weak key: %v, %v", made, err)
	}
}

// slow is a connection that takes some bytes at a time, at a rate.
type slow struct {
	net.Conn
	rate float64 // bytes per second
}

func (s *slow) Write(text []byte) (int, error) {
	const piece = 16 << 10
	for sent := 0; sent < len(text); {
		n, err := s.Conn.Write(text[sent:min(sent+piece, len(text))])
		sent += n
		if err != nil {
			return sent, err
		}
		<-time.After(time.Duration(float64(n) / s.rate * float64(time.Second)))
	}
	return len(text), nil
}

// TestSlowStream: a stream that cannot take what comes drops, and what it takes waits no longer than the queue.
func TestSlowStream(t *testing.T) {
	near, far := net.Pipe()
	const rate = 4e6
	s := newStream(&slow{near, rate}, near, netip.AddrPort{}, Info{}, &Totals{})
	go s.write()
	defer s.close(errHangup)
	start, sent := time.Now(), 0
	waits := make(chan time.Duration, 1<<16)
	go func() {
		reader := &transport.Frames{From: far}
		for {
			batch, err := reader.Next()
			if err != nil {
				close(waits)
				return
			}
			for _, one := range batch {
				var at time.Duration
				for i := range 8 {
					at |= time.Duration(one[i]) << (8 * i)
				}
				waits <- time.Since(start) - at
			}
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(start) < 2*time.Second {
		now := time.Since(start)
		datagram := make([]byte, 1400)
		for i := range 8 {
			datagram[i] = byte(now >> (8 * i))
		}
		s.send([][]byte{datagram, datagram, datagram, datagram, datagram, datagram}) // 8.4 MB/s
		sent += 6
		<-tick.C
	}
	s.close(errHangup)
	var took []time.Duration
	for one := range waits {
		took = append(took, one)
	}
	slices.Sort(took)
	const early = 4 // the first datagrams wait in a queue whose rate is not known yet
	typical := took[len(took)/2]
	t.Logf("%d of %d arrived, %d dropped; half waited %v, the longest %v", len(took), sent, s.totals.Dropped.Load(), typical, took[len(took)-1])
	if s.totals.Dropped.Load() == 0 || typical > early*time.Duration(float64(minQueue)/rate*float64(time.Second)) {
		t.Errorf("%d dropped, and half waited %v", s.totals.Dropped.Load(), typical)
	}
}

// TestOversized: a datagram that is too large has a counter of its own, does not make the queue grow, and takes none along. The counters are those of the peer.
func TestOversized(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	totals := &Totals{}
	s := newStream(near, near, netip.AddrPort{}, Info{}, totals)
	s.send([][]byte{make([]byte, transport.MaxDatagram+1), make([]byte, 1400), make([]byte, transport.MaxDatagram)})
	if over, dropped, sent := totals.Oversized.Load(), totals.Dropped.Load(),
		totals.Sent.Load(); over != 1 || dropped != 0 || s.full || sent != 1400+transport.MaxDatagram {
		t.Errorf("%d are too large, %d dropped, %d bytes sent, full %v", over, dropped, sent, s.full)
	}
	for s.totals.Dropped.Load() == 0 {
		s.send([][]byte{make([]byte, transport.MaxDatagram)})
	}
	if over := totals.Oversized.Load(); over != 1 || !s.full {
		t.Errorf("%d are too large after the queue is full, full %v", over, s.full)
	}
}

// TestOversizedRelay: a datagram of the kernel that does not fit into a buffer is counted. What is left of it would be no datagram of WireGuard.
func TestOversizedRelay(t *testing.T) {
	device, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer device.Close()
	hub, peer := New(Options{Log: logr.Discard()}), Key{1}
	relay, err := NewRelay(hub, uint16(device.LocalAddr().(*net.UDPAddr).Port))
	must(t, err)
	defer relay.Close()
	must(t, relay.Keep([]Key{peer}))
	near, far := net.Pipe()
	defer far.Close()
	totals := hub.TotalsOf(peer)
	hub.mu.Lock()
	hub.streams[peer] = newStream(near, near, hub.member(peer).address, Info{}, totals)
	hub.index()
	hub.mu.Unlock()
	for _, size := range []int{maxPacket + 1, 2 * maxPacket, maxPacket, 1400} {
		_, err := device.WriteToUDPAddrPort(make([]byte, size), hub.AddressOf(peer))
		must(t, err)
	}
	eventually(t, "the last one is sent", func() bool { return totals.Sent.Load() >= maxPacket+1400 })
	if over, dropped, sent := totals.Oversized.Load(), totals.Dropped.Load(), totals.Sent.Load(); over != 2 || dropped != 0 || sent != maxPacket+1400 {
		t.Errorf("%d are too large, %d dropped, %d bytes sent", over, dropped, sent)
	}
}

// TestAttackStreamLog: a peer that opens stream after stream, each of which replaces the one before, decides not how much is logged.
func TestAttackStreamLog(t *testing.T) {
	own, err := wgtypes.GeneratePrivateKey()
	must(t, err)
	other, err := wgtypes.GeneratePrivateKey()
	must(t, err)
	var lines atomic.Int64
	hub, peer := New(Options{Log: funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})}), Key(other.PublicKey())
	must(t, hub.SetKeys(Key(own), []Key{peer}))
	const many = 5 * logBurst
	for range many {
		near, far := net.Pipe()
		defer far.Close()
		must(t, hub.start(peer, near, near, Info{Kind: transport.TLS}))
	}
	eventually(t, "the streams that were replaced end", func() bool { return lines.Load() >= 2*logBurst-1 })
	hub.Close()
	t.Logf("%d streams, %d lines", many, lines.Load())
	if got := lines.Load(); got > 2*logBurst+2 {
		t.Errorf("%d streams of a peer make %d lines in the log, want at most two for each of %d", many, got, logBurst)
	}
}

// BenchmarkCarriers sends as many datagrams as each kind takes, between two ends of this process. As with TCP inside, some are on their way at any time.
func BenchmarkCarriers(b *testing.B) {
	ends := func(b *testing.B) (from, to *Bind, peer Key, udp, tcp netip.AddrPort, received func(func(int)), hub *Hub) {
		keys := [2]wgtypes.Key{}
		var hubs [2]*Hub
		var binds [2]*Bind
		var receivers []conn.ReceiveFunc
		var port uint16
		for i := range keys {
			var err error
			keys[i], err = wgtypes.GeneratePrivateKey()
			must(b, err)
		}
		for i := range keys {
			hubs[i] = New(Options{Log: logr.Discard()})
			must(b, hubs[i].SetKeys(Key(keys[i]), []Key{Key(keys[1-i].PublicKey())}))
			binds[i] = NewBind(conn.NewDefaultBind(), hubs[i])
			var err error
			receivers, port, err = binds[i].Open(0)
			must(b, err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(b, err)
		server := &Server{Hub: hubs[1], Path: isTest, Log: logr.Discard()}
		go func() { _ = server.Serve(b.Context(), listener) }()
		b.Cleanup(func() {
			for i := range hubs {
				hubs[i].Close()
				_ = binds[i].Close()
			}
		})
		return binds[0], binds[1], Key(keys[1].PublicKey()), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port),
			netip.MustParseAddrPort(listener.Addr().String()), func(count func(int)) {
				for _, receive := range receivers {
					go func() {
						packets, sizes, from := make([][]byte, batch), make([]int, batch), make([]conn.Endpoint, batch)
						for i := range packets {
							packets[i] = make([]byte, 1<<16)
						}
						for {
							n, err := receive(packets, sizes, from)
							if err != nil {
								return
							}
							count(n)
						}
					}()
				}
			}, hubs[0]
	}
	const size = 1400
	for _, kind := range []transport.Kind{transport.UDP, transport.TLS, transport.WebSocket} {
		b.Run(string(kind), func(b *testing.B) {
			from, _, peer, udp, tcp, received, hub := ends(b)
			const window = 4 * batch
			arrived := make(chan int, window)
			received(func(n int) { arrived <- n })
			to, err := from.ParseEndpoint(udp.String())
			must(b, err)
			if kind != transport.UDP {
				must(b, hub.Dial(b.Context(), peer, transport.Target{
					Kind: kind, Host: tcp.Addr().String(), Port: tcp.Port(), Path: map[transport.Kind]string{transport.WebSocket: "/liqo"}[kind],
				}))
				to, err = from.ParseEndpoint(hub.AddressOf(peer).String())
				must(b, err)
			}
			datagrams := make([][]byte, batch)
			for i := range datagrams {
				datagrams[i] = make([]byte, size, 1<<16)
			}
			b.SetBytes(size)
			b.ResetTimer()
			for n, under := 0, 0; n < b.N; {
				for ; under <= window-batch; under += batch {
					must(b, from.Send(datagrams, to))
				}
				select {
				case some := <-arrived:
					n, under = n+some, under-some
				case <-time.After(10 * time.Millisecond):
					under = 0 // some were lost
				}
			}
		})
	}
}
