// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// SecurePort is the port of the report over TLS, and SecurePortName its name in the pod of a gateway that has it. A gateway of an earlier version has the
// report at [Port] only.
const (
	SecurePort     = 5877
	SecurePortName = "report-tls"
)

const (
	// name is whom the certificate of a gateway is for.
	name = "liqo-gateway"
	// purpose separates the key of the report from the key of the tunnel, from which it is derived.
	purpose = "liqo gateway report"
)

// The certificate is valid at any time: it is as good as the key of the tunnel, and ends with it.
var from, until = time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Certificate returns what a gateway shows at [SecurePort]: a certificate whose key is derived from the private key of its tunnel, so that who has that key
// knows the certificate, without an exchange.
func Certificate(tunnel [32]byte) (*tls.Certificate, error) {
	seed, err := hkdf.Key(sha256.New, tunnel[:], nil, purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the report: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, // so that a version which encodes it otherwise is verified as well
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the report: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the report: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Reader returns the configuration of a reader that believes the gateway with this private key only.
func Reader(tunnel [32]byte) (*tls.Config, error) {
	certificate, err := Certificate(tunnel)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(certificate.Leaf)
	return config, nil
}
