// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// flood sends packets from an address, and nothing waits for answers.
func flood(t *testing.T, from netip.Addr, to netip.AddrPort, packets ...[]byte) net.Conn {
	t.Helper()
	connection, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	for _, packet := range packets {
		if _, err := connection.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	return connection
}

// TestAttackDNS: a pod that floods the name server, holds its questions or connections, or sends what is no message takes nothing from the pods of others.
func TestAttackDNS(t *testing.T) {
	upstream := serveZone(t, milan())
	served := func(t *testing.T, at netip.AddrPort) {
		t.Helper()
		for _, network := range []string{"udp", "tcp"} {
			if got, err := resolver(network, paris, at).LookupHost(t.Context(), "web.shop.svc.cluster.local."); err != nil || len(got) != 1 || got[0] != "10.2.0.1" {
				t.Errorf("a pod of the other peer is answered over %s with %v, %v", network, got, err)
			}
		}
	}
	many := func(count int, packet []byte) (all [][]byte) {
		for range count {
			all = append(all, packet)
		}
		return all
	}
	t.Run("many questions", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{PerSecond: 1, Burst: 20})
		sent := flood(t, rome, at, many(500, query(t, "web.prod.svc.cluster.local."))...)
		served(t, at)
		answers, buffer := 0, make([]byte, largest)
		for sent.SetReadDeadline(time.Now().Add(200*time.Millisecond)) == nil { // what is dropped never comes
			if _, err := sent.Read(buffer); err != nil {
				break
			}
			answers++
		}
		if answers < 1 || answers > 40 {
			t.Errorf("%d of 500 questions are answered, want about 20", answers)
		}
	})
	t.Run("questions that the DNS of the cluster never answers", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{All: 30, Each: 10})
		flood(t, rome, at, many(100, query(t, silent))...)
		served(t, at)
	})
	t.Run("questions of addresses that are not known", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{Hold: time.Minute, Held: 8, HeldEach: 4})
		flood(t, unknown, at, many(100, query(t, "web.shop.svc.cluster.local."))...)
		served(t, at)
		if got := code(t, unknown, at, "web.shop.svc.cluster.local."); got != "RCodeRefused" {
			t.Errorf("one more question is answered with %s", got)
		}
	})
	t.Run("idle connections", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{Connections: 20})
		for range 60 {
			connection, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: rome.AsSlice()}}).DialContext(t.Context(), "tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if _, err := connection.Write([]byte{0}); err != nil { // half of a length
				continue // it was one too many
			}
		}
		served(t, at)
	})
	t.Run("what is no question", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{})
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
		good := query(t, "web.shop.svc.cluster.local.")
		var packets [][]byte
		for range 300 {
			packet := append([]byte(nil), good...)
			for range 1 + random.IntN(8) {
				packet[random.IntN(len(packet))] = byte(random.IntN(256))
			}
			packets = append(packets, packet[:random.IntN(len(packet)+1)], make([]byte, random.IntN(60000)))
		}
		flood(t, rome, at, packets...)
		for _, frame := range [][]byte{{0xff, 0xff, 1, 2, 3}, {0, 1, 0}, append([]byte{0, 12}, make([]byte, 12)...)} {
			connection, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if _, err := connection.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
		served(t, at)
	})
	t.Run("answers are not larger than what is asked, for those who are no pods of peers", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{Hold: 1})
		packed := query(t, "web.shop.svc.cluster.local.")
		if answer := ask(t, unknown, at, packed); len(answer) > len(packed) {
			t.Errorf("%d bytes for %d", len(answer), len(packed))
		}
	})
	t.Run("an answer is never answered", func(t *testing.T) {
		at := start(t, peers(t), upstream, Limits{})
		answer := query(t, "web.shop.svc.cluster.local.")
		answer[2] |= 0x80
		connection := flood(t, rome, at, answer, query(t, "web.prod.svc.cluster.local."))
		buffer := make([]byte, largest)
		n, err := connection.Read(buffer)
		var m dnsmessage.Message
		if err != nil || m.Unpack(buffer[:n]) != nil || m.Questions[0].Name.String() != "web.prod.svc.cluster.local." {
			t.Errorf("the first answer is to %v, %v", m.Questions, err)
		}
	})
}

// TestTrim: the cache of the role has only what belongs to peers, and drops most of it.
func TestTrim(t *testing.T) {
	options, err := CacheOptions()
	if err != nil || len(options.ByObject) != 3 {
		t.Fatal(err)
	}
	for object, cached := range options.ByObject {
		if cached.Transform == nil || cached.Label == nil || cached.Label.Empty() {
			t.Errorf("all of %T would be kept", object)
		}
	}
}

// BenchmarkDNS measures what the name server adds to a question for a name of its own: the time of one question, and how many of many clients it answers
// in a second. All that answers and asks is in this process.
func BenchmarkDNS(b *testing.B) {
	upstream := serveZone(b, milan())
	at := start(b, peers(b), upstream, Limits{PerSecond: 1 << 30, Burst: 1 << 30, All: 1 << 20, Each: 1 << 20})
	for _, c := range []struct {
		name, host string
		to         netip.AddrPort
	}{
		{"direct", "web.shop-rome.svc.cluster.local.", upstream},
		{"translated", "web.shop.svc.cluster.local.", at},
		{"forwarded", "example.com.", at},
		{"absent", "web.prod.svc.cluster.local.", at},
	} {
		packet := query(b, c.host)
		exchange := func(b *testing.B, next func() bool) {
			connection, err := net.DialUDP("udp", &net.UDPAddr{IP: rome.AsSlice()}, net.UDPAddrFromAddrPort(c.to))
			if err != nil {
				b.Error(err)
				return
			}
			defer connection.Close()
			answer := make([]byte, largest)
			for next() {
				if _, err := connection.Write(packet); err != nil {
					b.Error(err)
					return
				}
				if _, err := connection.Read(answer); err != nil {
					b.Error(err)
					return
				}
			}
		}
		for _, clients := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", c.name, clients), func(b *testing.B) {
				start := time.Now()
				if clients == 1 {
					exchange(b, b.Loop)
				} else {
					b.SetParallelism(clients)
					b.RunParallel(func(pb *testing.PB) { exchange(b, pb.Next) })
				}
				b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "questions/s")
			})
		}
	}
}
