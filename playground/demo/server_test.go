// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/playground/demo/command"
	"liqo.io/liqo/playground/demo/server"
)

// started runs listener.serve like listener.run, on a port of the kernel's choice.
type started struct {
	address string
	stop    context.CancelFunc
	ended   chan error
}

func start(t *testing.T, l *server.Listener, w *web) started {
	t.Helper()
	config, err := l.TLS()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := started{address: socket.Addr().String(), stop: stop, ended: make(chan error, 1)}
	server := &http.Server{Handler: w.handler(), TLSConfig: config, ReadHeaderTimeout: time.Second}
	go func() { s.ended <- l.Serve(ctx, server, socket, func() { w.draining.Store(true) }) }()
	return s
}

// TestDrain is what a rolling update needs: after SIGTERM not ready, but still
// answering new connections; then the end, with a running request finished.
func TestDrain(t *testing.T) {
	w := newWeb(command.Environment{Pod: "p"})
	server := start(t, &server.Listener{Drain: 2 * time.Second}, w)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	base := "http://" + server.address
	if status, _ := get(t, client, base+"/readyz"); status != http.StatusOK {
		t.Fatalf("readyz %d before SIGTERM", status)
	}
	server.stop()
	for {
		status, body := get(t, client, base+"/readyz")
		if status == http.StatusServiceUnavailable && strings.Contains(body, "draining") {
			break
		}
	}
	if status, _ := get(t, client, base+"/healthz"); status != http.StatusOK {
		t.Errorf("healthz %d while draining: the kubelet would restart the pod", status)
	}
	// Longer than the drain, so it is running when the server stops listening.
	if status, _ := get(t, client, base+"/api/slow?ms=2500"); status != http.StatusOK {
		t.Errorf("request that lasted longer than the drain got %d", status)
	}
	if err := <-server.ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if _, err := client.Get(base + "/healthz"); err == nil {
		t.Error("still listening after the end")
	}
}

func TestSelfSigned(t *testing.T) {
	var printed bytes.Buffer
	server := start(t, &server.Listener{SelfSigned: "demo.default.svc", CertificateOut: &printed}, newWeb(command.Environment{}))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(printed.Bytes()) {
		t.Fatalf("printed no PEM certificate: %q", printed.String())
	}
	for name, trusted := range map[string]bool{"demo.default.svc": true, "other.default.svc": false} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}}
		response, err := client.Get("https://" + server.address + "/healthz")
		if (err == nil) != trusted {
			t.Errorf("server name %s: %v, want trusted=%t", name, err, trusted)
		}
		if err == nil {
			response.Body.Close()
		}
	}
}

func TestCertificateFiles(t *testing.T) {
	certificate, ca, err := server.SelfSigned("127.0.0.1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &server.Listener{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for name, content := range map[string][]byte{l.Cert: ca, l.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := start(t, l, newWeb(command.Environment{Pod: "p"}))
	roots := x509.NewCertPool()
	roots.AddCert(parseCertificate(t, certificate.Certificate[0]))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	response, err := client.Get("https://" + server.address + "/api/info")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		t.Errorf("protocol %s, want HTTP/2", response.Proto)
	}
}

func parseCertificate(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// TestServeCommand runs the whole command, with UDP, until its context ends.
func TestServeCommand(t *testing.T) {
	address, udp := freePort(t), freePort(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var complaints bytes.Buffer
	go func() {
		ended <- run(ctx, command.Call{Args: []string{"serve", "--listen", address, "--udp", udp, "--drain", "1ms"}, Stdout: io.Discard, Stderr: &complaints})
	}()
	for code := exitFailed; code != exitOK; { // until it listens, or the test's own deadline
		code, _, _ = execute(t, "probe", "tcp", address, "--count", "2", "--interval", "20ms", "--require", "any")
	}
	if code, out, _ := execute(t, "probe", "udp", udp, "--count", "3", "--interval", "1ms"); code != exitOK {
		t.Errorf("UDP: %s", out)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("serve ended with %d: %s", code, complaints.String())
	}
}

// freePort finds a port that was free a moment ago, for TCP and UDP.
func freePort(t *testing.T) string {
	t.Helper()
	// An address of its own: no other process takes the port before the test does.
	socket, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(254), rand.N(256), 1+rand.N(254)))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	return socket.Addr().String()
}
