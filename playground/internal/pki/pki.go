// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys and certificates of one cluster and the kubeconfigs that use
// them.
//
// It is pure but for randomness and the clock, which it takes from crypto/rand and from its
// caller: values in, PEM and YAML out; it writes no files. Clusters share nothing: a
// certificate of one is invalid in another. Its proof is pki_test.go.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// validity is long enough for any playground and short enough to be no credential to keep.
const validity = 365 * 24 * time.Hour

// Authority is a certificate authority.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
	// Certificate and Key are PEM.
	Certificate, Key []byte
}

// Pair is a certificate with its key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Subject is the user and the names of a certificate. A certificate is valid for clients and for
// servers; Names and IPs are those that it serves.
type Subject struct {
	User   string
	Groups []string
	Names  []string
	IPs    []netip.Addr
}

// NewAuthority makes an authority of that common name, valid from an hour before now.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of authority %s: %w", name, err)
	}
	template := template(Subject{User: name}, now)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key, now: now, Certificate: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

// Issue signs a certificate for a new key.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", s.User, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template(s, a.now), a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", s.User, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

// ServiceAccountKey makes the key that signs service account tokens. It is RSA, because
// tokens of other algorithms are refused by some clients of the OIDC discovery document.
func ServiceAccountKey() (Pair, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return Pair{}, fmt.Errorf("make the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode the service account key: %w", err)
	}
	private, err := encodeKey(key)
	return Pair{Certificate: encode("PUBLIC KEY", public), Key: private}, err
}

func template(s Subject, now time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails since Go 1.24
	ips := make([]net.IP, 0, len(s.IPs))
	for _, ip := range s.IPs {
		ips = append(ips, ip.AsSlice())
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.User, Organization: s.Groups},
		DNSNames:     s.Names, IPAddresses: ips,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return encode("PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
