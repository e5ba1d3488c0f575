// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestAttackL9: a reader believes the gateway that has the private key of the tunnel, and no other server, also one that has a copy of the
// certificate, or another gateway's key.
func TestAttackL9(t *testing.T) {
	gateway, other := [32]byte{1}, [32]byte{2}
	for name, row := range map[string]struct {
		server [32]byte
		works  bool
	}{"the gateway": {gateway, true}, "another gateway": {other, false}} {
		certificate, err := Certificate(row.server)
		if err != nil {
			t.Fatal(err)
		}
		if err := shake(t, certificate, gateway); (err == nil) != row.works {
			t.Errorf("%s: %v, works: want %t", name, err, row.works)
		}
	}
	// A certificate with the right names, whose key is not that of the right certificate.
	right, err := Certificate(gateway)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := Certificate(other)
	if err != nil {
		t.Fatal(err)
	}
	stolen := &tls.Certificate{Certificate: right.Certificate, PrivateKey: wrong.PrivateKey}
	if err := shake(t, stolen, gateway); err == nil {
		t.Error("a copy of the certificate proves a gateway that does not have the key")
	}
	if string(right.Leaf.RawSubjectPublicKeyInfo) == string(wrong.Leaf.RawSubjectPublicKeyInfo) {
		t.Error("two gateways have one key")
	}
}

// shake returns why a reader of the gateway with this key does not accept the certificate.
func shake(t *testing.T, certificate *tls.Certificate, key [32]byte) error {
	t.Helper()
	config, err := Reader(key)
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	deadline := time.Now().Add(time.Minute)
	_, _ = here.SetDeadline(deadline), there.SetDeadline(deadline)
	server := tls.Server(there, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, SessionTicketsDisabled: true})
	go func() {
		_ = server.Handshake()
		_ = there.Close()
	}()
	return tls.Client(here, config).Handshake()
}

// BenchmarkReport is what a reader and a gateway pay for TLS with each line, of a cluster with three peers and five nodes.
func BenchmarkReport(b *testing.B) {
	certificate, err := Certificate([32]byte{1})
	if err != nil {
		b.Fatal(err)
	}
	config, err := Reader([32]byte{1})
	if err != nil {
		b.Fatal(err)
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	line := make([]byte, 3*(400+5*70))
	go func() {
		server := tls.Server(there, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}})
		for {
			if _, err := server.Write(line); err != nil {
				return
			}
		}
	}()
	client, read := tls.Client(here, config), make([]byte, len(line))
	for b.Loop() {
		for n := 0; n < len(line); {
			some, err := client.Read(read[n:])
			if err != nil {
				b.Fatal(err)
			}
			n += some
		}
	}
}
