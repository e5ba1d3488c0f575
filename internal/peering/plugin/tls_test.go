// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// authority signs certificates of a test.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t}
	made := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert, a.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign returns a certificate of a template that is valid until NotAfter, or for an hour.
func (a *authority) sign(template *x509.Certificate) tls.Certificate {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.BasicConstraintsValid = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour), true
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// serverTemplate is for a plugin at an address, clientTemplate for what this cluster shows.
func serverTemplate(ip string) *x509.Certificate {
	return &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

func clientTemplate() *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: "liqo"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// folder holds the certificate of an authority, and what a client shows.
func (a *authority) folder(client *tls.Certificate) string {
	a.Helper()
	dir := a.TempDir()
	a.write(dir, caFile, "CERTIFICATE", a.cert.Raw)
	if client != nil {
		key, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
		if err != nil {
			a.Fatal(err)
		}
		a.write(dir, certFile, "CERTIFICATE", client.Certificate[0])
		a.write(dir, keyFile, "PRIVATE KEY", key)
	}
	return dir
}

func (a *authority) write(dir, name, kind string, der []byte) {
	a.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
}

// granting is a plugin that grants one processor.
type granting struct {
	UnimplementedResourceReaderServer
}

func (granting) ReadResources(context.Context, *ClusterIdentity) (*ResourceList, error) {
	return &ResourceList{Resources: map[string]string{"cpu": "1"}}, nil
}

// serve returns the address of a plugin with credentials.
func serve(t *testing.T, with credentials.TransportCredentials) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(with))
	RegisterResourceReaderServer(server, granting{})
	go func() { _ = server.Serve(at) }()
	t.Cleanup(server.Stop)
	return at.Addr().String()
}

// TestAttackL9: with the authority of the plugin, what answers at its address in its place decides nothing, and the error reports what to try. The
// real plugin is used, also with a certificate of this cluster.
func TestAttackL9(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	client, foreign := ours.sign(clientTemplate()), other.sign(clientTemplate())
	expired := serverTemplate("127.0.0.1")
	expired.NotAfter = time.Now().Add(-time.Hour)
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	shows := func(certificate tls.Certificate) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	}
	asks := shows(ours.sign(serverTemplate("127.0.0.1")))
	asks.ClientAuth, asks.ClientCAs = tls.RequireAndVerifyClientCert, clients
	for _, row := range []struct {
		name   string
		server *tls.Config // nil: without TLS
		client *tls.Certificate
		// unproven, and what the error reports; "" for an answer.
		unproven bool
		reports  string
	}{
		{"the plugin", shows(ours.sign(serverTemplate("127.0.0.1"))), nil, false, ""},
		{"the plugin, which asks who we are", asks, &client, false, ""},
		{
			"another with a certificate of its own", shows(other.sign(serverTemplate("127.0.0.1"))), nil, true,
			"ca.crt must hold the certificate that signs the plugin's",
		},
		{"another of the same authority", shows(ours.sign(serverTemplate("192.0.2.1"))), nil, true, "must be for the host in the plugin's address"},
		{"an old certificate", shows(ours.sign(expired)), nil, true, "renew the plugin's certificate"},
		{"another without TLS", nil, nil, true, "the plugin serves without TLS"},
		{"the plugin, which does not get to know who we are", asks, nil, false, "certificate required"},
		{"the plugin, which does not know us", asks, &foreign, false, "unknown certificate authority"},
	} {
		t.Run(row.name, func(t *testing.T) {
			with := insecure.NewCredentials()
			if row.server != nil {
				with = credentials.NewTLS(row.server)
			}
			plugin, err := New(serve(t, with), ours.folder(row.client), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer plugin.Close()
			_, err = plugin.Read(t.Context(), "rome")
			// In TLS 1.3, a client is refused after its handshake: a write may fail before it has read why.
			for deadline := time.Now().Add(10 * maxRetry); err != nil && !row.unproven && !strings.Contains(err.Error(), row.reports) && time.Now().Before(deadline); {
				plugin.connection.ResetConnectBackoff()
				_, err = plugin.Read(t.Context(), "rome")
			}
			if (err == nil) != (row.reports == "") || err != nil && !strings.Contains(err.Error(), row.reports) || errors.Is(err, ErrUnproven) != row.unproven {
				t.Errorf("%v, want %q, unproven: %t", err, row.reports, row.unproven)
			}
		})
	}
}

// TestReplacedAuthority: an authority that is replaced in the Secret holds for the next connection, without a restart.
func TestReplacedAuthority(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	dir := before.folder(nil)
	plugin, err := New(serve(t, credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{after.sign(serverTemplate("127.0.0.1"))},
	})), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close()
	if _, err := plugin.Read(t.Context(), "rome"); !errors.Is(err, ErrUnproven) {
		t.Errorf("%v, want %v", err, ErrUnproven)
	}
	after.write(dir, caFile, "CERTIFICATE", after.cert.Raw)
	deadline := time.Now().Add(10 * maxRetry)
	for _, err = plugin.Read(t.Context(), "rome"); err != nil && time.Now().Before(deadline); _, err = plugin.Read(t.Context(), "rome") {
		plugin.connection.ResetConnectBackoff()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestCertificatesThatCannotWork are refused at the start, with what to do.
func TestCertificatesThatCannotWork(t *testing.T) {
	ours := newAuthority(t)
	client := ours.sign(clientTemplate())
	for name, row := range map[string]struct {
		spoil   func(dir string) error
		reports string
	}{
		"no authority":        {func(dir string) error { return os.Remove(filepath.Join(dir, caFile)) }, "put the certificates that sign the plugin's into ca.crt"},
		"an empty authority":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, caFile), []byte("none"), 0o600) }, "ca.crt holds no certificate"},
		"no key":              {func(dir string) error { return os.Remove(filepath.Join(dir, keyFile)) }, "or leave out both"},
		"no certificate":      {func(dir string) error { return os.Remove(filepath.Join(dir, certFile)) }, "or leave out both"},
		"not the certificate": {func(dir string) error { return os.Rename(filepath.Join(dir, caFile), filepath.Join(dir, certFile)) }, "ca.crt"},
	} {
		dir := ours.folder(&client)
		if err := row.spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := New("127.0.0.1:1", dir, 0); err == nil || !strings.Contains(err.Error(), row.reports) {
			t.Errorf("%s: %v, want %q", name, err, row.reports)
		}
	}
}
