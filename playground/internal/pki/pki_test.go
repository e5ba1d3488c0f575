// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/pki"
)

func TestIssuedCertificateServesAndNamesItsUser(t *testing.T) {
	now := time.Now()
	ca, err := pki.NewAuthority("rome", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Subject{
		User: "kube-apiserver", Groups: []string{"g"}, Names: []string{"kubernetes"},
		IPs: []netip.Addr{netip.MustParseAddr("10.210.1.10")},
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.Certificate) {
		t.Fatal("the authority is no certificate")
	}
	for _, host := range []string{"kubernetes", "10.210.1.10"} {
		if _, err := loaded.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: now}); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{DNSName: "10.210.2.10", Roots: pool}); err == nil {
		t.Error("good for an address it was not issued for")
	}
	if loaded.Leaf.Subject.CommonName != "kube-apiserver" || loaded.Leaf.Subject.Organization[0] != "g" {
		t.Errorf("names %v", loaded.Leaf.Subject)
	}
}

func TestAuthoritiesDoNotTrustEachOther(t *testing.T) {
	rome, _ := pki.NewAuthority("rome", time.Now())
	milan, _ := pki.NewAuthority("milan", time.Now())
	pair, err := rome.Issue(pki.Subject{User: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	loaded, _ := tls.X509KeyPair(pair.Certificate, pair.Key)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(milan.Certificate)
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool}); err == nil {
		t.Error("milan trusts a certificate of rome")
	}
}

func TestMergeKeepsBothContexts(t *testing.T) {
	access := func(name string) pki.Access {
		return pki.Access{
			Cluster: name, User: "admin", Server: "https://" + name, Authority: []byte("ca"),
			Pair: pki.Pair{Certificate: []byte("c"), Key: []byte("k")},
		}
	}
	rome, err := pki.Kubeconfig(access("rome"))
	if err != nil {
		t.Fatal(err)
	}
	milan, _ := pki.Kubeconfig(access("milan"))
	merged, err := pki.Merge(rome, milan)
	if err != nil {
		t.Fatal(err)
	}
	both, _ := pki.Kubeconfig(access("rome"), access("milan"))
	if !bytes.Equal(merged, both) {
		t.Errorf("merged\n%s\nrendered together\n%s", merged, both)
	}
}
