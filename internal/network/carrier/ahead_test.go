// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// TestReadAhead: what has arrived in several records of TLS is delivered at once, as each delivery costs WireGuard much.
func TestReadAhead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer near.Close()
	far, err := listener.Accept()
	must(t, err)
	defer far.Close()
	own, err := selfSigned(time.Now())
	must(t, err)
	const datagrams, size, records = 40, 1400, 16 << 10
	go func() {
		server := tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}})
		var text []byte
		for range datagrams {
			text = transport.AppendFrame(text, make([]byte, size))
		}
		_, _ = server.Write(text) // what is missing is seen below
	}()
	under := &transport.Ahead{Conn: near}
	client := tls.Client(under, transport.OuterTLS("rome"))
	must(t, client.HandshakeContext(t.Context()))
	under.Start()
	_, err = under.Reader.Peek(datagrams * size)
	must(t, err)
	got, err := (&transport.Frames{From: client, More: under.More}).Next()
	if err != nil || len(got) < 2*records/size {
		t.Errorf("%d of %d datagrams at once: %v", len(got), datagrams, err)
	}
}
