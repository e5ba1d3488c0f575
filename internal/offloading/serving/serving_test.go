// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeep: a certificate is renewed long before it expires, and not more often than needed.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Names{Common: "x", IPs: []net.IP{net.IPv4(10, 0, 0, 9)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go c.Keep(ctx)
		serials := map[string]bool{}
		for range 4 * 90 { // 90 days, every six hours
			now, err := c.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			serials[now.Leaf.SerialNumber.String()] = true
			if left := time.Until(now.Leaf.NotAfter); left < lifetime/5 || now.Leaf.VerifyHostname("10.0.0.9") != nil {
				t.Fatalf("%v left of %v", left, now.Leaf.Subject)
			}
			time.Sleep(6 * time.Hour)
			synctest.Wait()
		}
		if len(serials) != 4 && len(serials) != 5 {
			t.Errorf("%d certificates in 90 days", len(serials))
		}
		cancel()
		synctest.Wait()
	})
}

// TestFiles: replaced files are read again, and files that do not fit together leave the last certificate in use.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := FromFiles(certPath, keyPath); err == nil {
		t.Fatal("a certificate without files")
	}
	write := func() *tls.Certificate {
		made, err := SelfSigned(Names{Common: "milan"}, time.Now(), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for path, block := range map[string]*pem.Block{certPath: {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, keyPath: {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return made
	}
	first := write()
	files, err := FromFiles(certPath, keyPath)
	if err != nil {
		t.Fatal(err)
	}
	uses := func(when string, want *tls.Certificate) {
		t.Helper()
		if got, err := files.Get(nil); err != nil || !slices.Equal(got.Certificate[0], want.Certificate[0]) {
			t.Errorf("%s: %v", when, err)
		}
	}
	uses("at first", first)
	second := write()
	uses("within the interval", first)
	files.read = time.Time{}
	uses("after the interval", second)
	if err := os.WriteFile(keyPath, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files.read = time.Time{}
	uses("half written", second)
}

// TestParseSigned: only a certificate for our key and our addresses is used, whatever the signer returns.
func TestParseSigned(t *testing.T) {
	names := Names{Common: "x", IPs: []net.IP{net.IPv4(10, 0, 0, 9)}}
	chain := func(made *tls.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]})
	}
	made, err := SelfSigned(names, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key := made.PrivateKey.(*ecdsa.PrivateKey)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		text  []byte
		key   *ecdsa.PrivateKey
		names Names
		want  string
	}{
		{"ours", chain(made), key, names, ""},
		{"nothing", nil, key, names, "read the signed certificate"},
		{"no certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), key, names, "read the signed certificate"},
		{"for another key", chain(made), other, names, "private key does not match"},
		{"for another address", chain(made), key, Names{IPs: []net.IP{net.IPv4(10, 0, 0, 10)}}, "10.0.0.10"},
	} {
		got, err := parseSigned(c.text, c.key, c.names)
		if c.want == "" && (err != nil || got.Leaf == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// listen returns a listener and a certificate for a server of the test.
func listen(t *testing.T) (net.Listener, *Certificate) {
	t.Helper()
	c, err := New(Names{Common: "x"})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener, c
}

// TestServe: streams end when the process does.
func TestServe(t *testing.T) {
	listener, c := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	streamEnded := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, listener, c.Get, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			_, _ = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\n\r\n") // the client below notices what is missing
			<-r.Context().Done()
			close(streamEnded)
		}))
	}()
	connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-streamEnded
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}
