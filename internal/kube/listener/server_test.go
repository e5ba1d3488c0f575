// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"

	"liqo.io/liqo/internal/kube/kubetest"
)

// start serves a port of the test.
func start(t *testing.T, p Port) (address string) {
	t.Helper()
	if p.Log.GetSink() == nil {
		p.Log = logr.Discard()
	}
	server, err := Listen(t.Context(), "127.0.0.1:0", p)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(t, "server", server.Serve)
	return server.HTTP.Addr
}

// dial connects from an address of this host. config is nil for plain TCP.
func dial(t *testing.T, from, to string, config *tls.Config) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	raw, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	if config == nil {
		return raw
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return secure
}

// ask sends a text and returns the status of the answer.
func ask(connection net.Conn, text string) string {
	if _, err := io.WriteString(connection, text); err != nil {
		return err.Error()
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return "ended"
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // a reset shows in the next answer
	return fmt.Sprint(response.StatusCode)
}

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// identity returns a key pair, and who it belongs to for [Port.Who].
func identity(t *testing.T) (*tls.Config, func(tls.ConnectionState) string) {
	t.Helper()
	public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(public, private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, InsecureSkipVerify: true,
	}, func(state tls.ConnectionState) string { //nolint:gosec // the test knows both ends
		if len(state.PeerCertificates) > 0 && state.PeerCertificates[0].Equal(leaf) {
			return "it"
		}
		return ""
	}
}

// TestHeaders: headers that are too large or have too many lines end the connection, others and any body pass, on each request of a connection.
func TestHeaders(t *testing.T) {
	secure, who := identity(t)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	header := func(lines, bytes int) string {
		return "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: "+strings.Repeat("x", bytes)+"\r\n", lines) + "\r\n"
	}
	post := func(body string) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for _, c := range []struct {
		name     string
		requests []string
		want     string
		// certified: the same with a certificate that proves who the client is.
		certified string
	}{
		{"small", []string{request, request}, "200 200", "200 200"},
		{"large", []string{header(1, 7<<10)}, "200", "200"},
		{"too large", []string{header(1, 9<<10)}, "431", "200"},
		{"many lines", []string{header(100, 1)}, "200", "200"},
		{"too many lines", []string{header(200, 1)}, "431", "200"},
		{"too large for all", []string{header(1, 80<<10)}, "431", "431"},
		{"a large body", []string{post(strings.Repeat("x", 1<<20)), post(strings.Repeat("\r\n", 1<<19)), request}, "200 200 200", "200 200 200"},
		{"too large after others", []string{request, post("x"), header(1, 9<<10)}, "200 200 431", "200 200 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, run := range map[string]struct {
				server, client *tls.Config
				want           string
			}{
				"plain": {nil, nil, c.want}, "tls": {
					secure, &tls.Config{InsecureSkipVerify: true}, c.want,
				}, "certified": {secure, secure, c.certified}, //nolint:gosec // the test knows both ends
			} {
				address := start(t, Port{Limits: Limits{HeaderKept: 64 << 10, Kept: 2}, Handler: echo, TLS: run.server, Who: who})
				connection := dial(t, "127.0.0.1", address, run.client)
				var got []string
				for _, text := range c.requests {
					got = append(got, ask(connection, text))
				}
				if answers := strings.Join(got, " "); answers != run.want {
					t.Errorf("%s: answered with %s, want %s", name, answers, run.want)
				}
			}
		})
	}
}

// TestKept: a client that has proven who it is, by its certificate or in a request, keeps its connection however many others come; with a stream of
// its own too.
func TestKept(t *testing.T) {
	secure, who := identity(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/prove":
			Keep(r.Context(), "this client")
		case "/stream":
			stream, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			Keep(r.Context(), "streams")
			_, _ = io.WriteString(stream, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_, _ = io.Copy(stream, stream) // until the client ends it
		}
	})
	address := start(t, Port{Limits: Limits{All: 4, Kept: 8}, Handler: handler, TLS: secure, Who: who})
	plain := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test knows both ends
	certified, proven, stream, unknown := dial(t, "127.0.0.1", address, secure), dial(t, "127.0.0.1", address, plain),
		dial(t, "127.0.0.1", address, plain), dial(t, "127.0.0.1", address, plain)
	if got := ask(proven, "GET /prove HTTP/1.1\r\nHost: x\r\n\r\n") + ask(unknown, request); got != "200200" {
		t.Fatal(got)
	}
	if _, err := io.WriteString(stream, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(stream)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatal(line, err)
	}
	_, _ = answers.ReadString('\n') // the empty line; the echo below shows that it was there
	for n := range 40 {
		if got := ask(dial(t, "127.0.0."+fmt.Sprint(2+n%4), address, plain), request); got != "200" {
			t.Fatalf("connection %d is answered with %s", n, got)
		}
	}
	if got := ask(certified, request) + " " + ask(proven, request) + " " + ask(unknown, request); got != "200 200 ended" &&
		!strings.HasPrefix(got, "200 200 write") {
		t.Errorf("after 40 others: %s, want 200 200 and an end", got)
	}
	if _, err := io.WriteString(stream, "echo\n"); err != nil {
		t.Error(err)
	}
	if line, err := answers.ReadString('\n'); line != "echo\n" {
		t.Errorf("the stream carries %q, %v", line, err)
	}
}

// TestEnd: a server that is asked to end ends its connections, and handshakes that are not done; its address is free again.
func TestEnd(t *testing.T) {
	secure, _ := identity(t)
	server, err := Listen(t.Context(), "127.0.0.1:0", Port{Handler: http.NotFoundHandler(), TLS: secure, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	silent := dial(t, "127.0.0.1", server.HTTP.Addr, nil)
	if got := ask(
		dial(t, "127.0.0.1", server.HTTP.Addr, &tls.Config{InsecureSkipVerify: true}), request,
	); got != "404" { //nolint:gosec // the test knows both ends
		t.Error(got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the server answers after its end")
	}
	again, err := Open(t.Context(), server.HTTP.Addr)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestRequests: a connection carries as many requests as its port wants, and the answer to the last one announces the end.
func TestRequests(t *testing.T) {
	address := start(t, Port{Limits: Limits{Requests: 2}, Handler: http.NotFoundHandler()})
	connection := dial(t, "127.0.0.1", address, nil)
	if got := ask(connection, request) + " " + ask(connection, request) + " " + ask(connection, request); !strings.HasPrefix(got, "404 404 ") ||
		strings.HasSuffix(got, "404") {
		t.Error(got)
	}
}
