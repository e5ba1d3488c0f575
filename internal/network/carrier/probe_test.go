// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// TestProbe: a gateway answers at each way, without a key and without a stream; what is no gateway does not, and a refused port is reported.
func TestProbe(t *testing.T) {
	a, b := newGateway(t, 1, false), newGateway(t, 2, false)
	meet(a, b)
	for name, target := range targets(b, nil) {
		if target.Proxy != nil {
			continue
		}
		if err := Probe(t.Context(), target); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		target.Refuse = func(netip.Addr) error { return errors.New("not there") }
		if err := Probe(t.Context(), target); err == nil || !strings.Contains(err.Error(), "not there") {
			t.Errorf("%s, refused: %v", name, err)
		}
	}
	if _, ok := b.hub.Stream(a.public); ok {
		t.Error("there is a stream")
	}
	first := newGateway(t, 3, false) // without keys, as before the first peering
	for _, name := range []string{"TLS", "WebSocket"} {
		if err := Probe(t.Context(), targets(first, nil)[name]); err != nil {
			t.Errorf("%s, before the first peering: %v", name, err)
		}
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // no gateway
		}
	}()
	at := netip.MustParseAddrPort(other.Addr().String())
	for _, kind := range []transport.Kind{transport.TLS, transport.WebSocket} {
		if err := Probe(t.Context(), transport.Target{Kind: kind, Host: at.Addr().String(), Port: at.Port(), Path: "/liqo"}); err == nil {
			t.Errorf("%s: what is no gateway answers", kind)
		}
	}
	must(t, other.Close())
	closed := transport.Target{Kind: transport.UDP, Host: "127.0.0.1", Port: at.Port()}
	if err := Probe(t.Context(), closed); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "udp://127.0.0.1") {
		t.Errorf("UDP, nothing listens: %v", err)
	}
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		result <- Probe(ctx, transport.Target{Kind: transport.UDP, Host: "127.0.0.1", Port: netip.MustParseAddrPort(silent.LocalAddr().String()).Port()})
	}()
	_, _, err = silent.ReadFromUDPAddrPort(make([]byte, 1)) // it has arrived, and has no answer
	must(t, err)
	cancel()
	if err := <-result; err != nil {
		t.Errorf("UDP, something listens: %v", err)
	}
}
