// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

var testKey = bytes.Repeat([]byte("k"), minKey)

const (
	rome  = "11111111-1111-4111-8111-111111111111"
	milan = "22222222-2222-4222-8222-222222222222"
)

// fixture is a proxy in front of two servers, and a third one that no client may reach.
type fixture struct {
	address          string
	api, auth, plain *httptest.Server
	elsewhere        net.Listener
	reached          atomic.Int32 // connections to elsewhere
}

func start(t *testing.T, limits Limits) *fixture {
	t.Helper()
	f := &fixture{}
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.URL.Path) })
	}
	f.api, f.auth, f.plain = httptest.NewTLSServer(named("api")), httptest.NewTLSServer(named("auth")), httptest.NewServer(named("plain"))
	t.Cleanup(func() { f.api.Close(); f.auth.Close(); f.plain.Close() })
	var err error
	if f.elsewhere, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.elsewhere.Close() })
	go func() {
		for {
			connection, err := f.elsewhere.Accept()
			if err != nil {
				return
			}
			f.reached.Add(1)
			connection.Close()
		}
	}()
	host := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	served, err := New(Options{
		Upstreams: map[string]Upstream{
			APIServer: {Address: host(f.api)}, Auth: {Address: host(f.auth)},
			"plain:443": {Address: host(f.plain), TLS: &tls.Config{Certificates: f.auth.TLS.Certificates}},
			"gone:443":  {Address: "127.0.0.1:1"},
		},
		Key: testKey, Limits: limits, Log: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if len(served.all) != 0 || served.waiting.Guests() != 0 || served.busy != 0 || len(served.peers) != 0 {
			t.Errorf(
				"after its end, the proxy counts %d connections, %d waiting, %d busy, of %d peers", len(served.all), served.waiting.Guests(),
				served.busy, len(served.peers),
			)
		}
	})
	return f
}

// dial opens a connection to the proxy.
func (f *fixture) dial(t testing.TB) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// pass is the header of a peer.
func pass(peer string) string {
	word, _ := Pass(testKey, peer)
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(peer+":"+word)) + "\r\n"
}

func asking(peer, to string) string {
	return "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n" + pass(peer) + "\r\n"
}

// askingOnly is the same with a pass for the authentication service only.
func askingOnly(peer, to string) string {
	word, _ := AuthPass(testKey, peer)
	return "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(peer+":"+word)) + "\r\n\r\n"
}

// ask sends text, and returns the code of the answer; 0 if the proxy closes the connection without one.
func ask(t testing.TB, connection net.Conn, text string) int {
	t.Helper()
	go func() { _, _ = io.WriteString(connection, text) }() // the proxy may answer before it has read all
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0
	}
	return response.StatusCode
}

// client is an honest client of a peer.
func (f *fixture) client(t *testing.T, peer string) *http.Client {
	t.Helper()
	through, err := URL(testKey, peer, "proxy.invalid")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := url.Parse(through)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.Port() != "8118" {
		t.Fatalf("the URL of the proxy is %s", parsed.Redacted())
	}
	roots := x509.NewCertPool()
	roots.AddCert(f.api.Certificate())
	transport := &http.Transport{
		Proxy: http.ProxyURL(parsed), TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, f.address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func fetch(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// TestBothDestinations: the client of net/http reaches the API server and the authentication service, with their own certificates.
func TestBothDestinations(t *testing.T) {
	f := start(t, Limits{})
	for url, want := range map[string]string{
		APIServerURL + "/livez": "api /livez", discoveryv1alpha1.AuthURLInside + "/ids": "auth /ids", "https://plain/ids": "plain /ids",
	} {
		if got, err := fetch(f.client(t, rome), url); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", url, got, err, want)
		}
	}
}

// TestHostileRequests: whatever else is asked for gets a refusal, and no other host is reached.
func TestHostileRequests(t *testing.T) {
	f := start(t, Limits{Request: 2 * time.Second})
	other := f.elsewhere.Addr().String()
	to := func(host string) string {
		return "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n" + pass(rome) + "\r\n"
	}
	for name, row := range map[string]struct {
		text string
		want int
	}{
		"another host":            {to(other), http.StatusForbidden},
		"another port":            {to("kubernetes.default.svc:6443"), http.StatusForbidden},
		"no port":                 {to("kubernetes.default.svc"), http.StatusForbidden},
		"a longer name":           {to("kubernetes.default.svc.evil.example:443"), http.StatusForbidden},
		"upper case":              {to("KUBERNETES.default.svc:443"), http.StatusForbidden},
		"the metadata service":    {to("169.254.169.254:80"), http.StatusForbidden},
		"our own node":            {to("127.0.0.1:10250"), http.StatusForbidden},
		"a user in the authority": {to("liqo-auth@" + other), http.StatusForbidden},
		"a path":                  {to("/" + other), http.StatusForbidden},
		"another Host header":     {"CONNECT " + APIServer + " HTTP/1.1\r\nHost: " + other + "\r\n" + pass(rome) + "\r\n", http.StatusOK}, // it does not count
		"two Host headers": {
			"CONNECT " + APIServer + " HTTP/1.1\r\nHost: " + APIServer + "\r\nHost: " + other + "\r\n" + pass(rome) + "\r\n", http.StatusBadRequest,
		},
		"GET of an absolute URL": {"GET http://" + other + "/ HTTP/1.1\r\nHost: " + other + "\r\n" + pass(rome) + "\r\n", http.StatusMethodNotAllowed},
		"POST":                   {"POST / HTTP/1.1\r\nHost: liqo-auth\r\nContent-Length: 0\r\n" + pass(rome) + "\r\n", http.StatusMethodNotAllowed},
		"HTTP/2 without TLS":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", http.StatusMethodNotAllowed},
		"smuggled length": {
			"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n" + pass(rome) + "Content-Length: 44\r\n\r\nCONNECT " + other + " HTTP/1.1\r\nHost: x\r\n\r\n",
			http.StatusBadRequest,
		},
		"smuggled chunks": {
			"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n" + pass(rome) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			http.StatusBadRequest,
		},
		"both": {
			"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n" + pass(rome) + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			http.StatusBadRequest,
		},
		"a header folded over a line": {"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n X-More: 1\r\n" + pass(rome) + "\r\n", http.StatusOK}, // the same
		"an upgrade":                  {"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\nUpgrade: websocket\r\n" + pass(rome) + "\r\n", http.StatusBadRequest},
		"no pass":                     {"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n\r\n", http.StatusProxyAuthRequired},
		"the pass of another peer": {"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n" +
			strings.Replace(pass(rome), "Basic ", "Basic "+base64.StdEncoding.EncodeToString([]byte(milan))[:16], 1) + "\r\n", http.StatusProxyAuthRequired},
		"two passes": {"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\n" + pass(rome) + pass(milan) + "\r\n", http.StatusProxyAuthRequired},
		"a long request": {
			"CONNECT " + Auth + " HTTP/1.1\r\nHost: " + Auth + "\r\nX: " + strings.Repeat("a", 2*maxRequest) + "\r\n\r\n",
			http.StatusRequestHeaderFieldsTooLarge,
		},
		"TLS":                        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", http.StatusBadRequest},
		"a destination that is down": {to("gone:443"), http.StatusBadGateway},
		"half of a request":          {"CONNECT " + Auth + " HTTP/1.1\r\nHost:", http.StatusBadRequest}, // after the deadline
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, f.dial(t), row.text); got != row.want {
				t.Errorf("the answer is %d, want %d", got, row.want)
			}
		})
	}
	if n := f.reached.Load(); n != 0 {
		t.Errorf("another host was reached %d times", n)
	}
}

// TestPass: a pass is that of one peer and one proxy.
func TestPass(t *testing.T) {
	for name, row := range map[string]struct {
		key  []byte
		peer string
	}{"no key": {nil, rome}, "a short key": {testKey[:8], rome}, "no peer": {testKey, ""}} {
		if got, err := Pass(row.key, row.peer); err == nil {
			t.Errorf("%s: pass %q", name, got)
		}
	}
	first, _ := Pass(testKey, rome)
	second, _ := Pass(testKey, milan)
	third, _ := Pass(bytes.Repeat([]byte("x"), minKey), rome)
	fourth, _ := AuthPass(testKey, rome)
	if all := []string{first, second, third, fourth}; len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("the passes %q are not all different", all)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a proxy without a key starts")
	}
}

// TestAuthPass: with a pass for the authentication service, a peer reaches that and nothing else.
func TestAuthPass(t *testing.T) {
	f := start(t, Limits{})
	word, err := AuthPass(testKey, rome)
	if err != nil {
		t.Fatal(err)
	}
	romes := base64.StdEncoding.EncodeToString([]byte(rome + ":" + word))
	for peer, row := range map[string]map[string]int{
		rome: {
			Auth: http.StatusOK, APIServer: http.StatusForbidden, "plain:443": http.StatusForbidden, "gone:443": http.StatusForbidden,
			f.elsewhere.Addr().String(): http.StatusForbidden, "liqo-auth:8443": http.StatusForbidden,
		},
		milan: {Auth: http.StatusProxyAuthRequired, APIServer: http.StatusProxyAuthRequired},
	} {
		for to, want := range row {
			if got := ask(t, f.dial(t), strings.Replace(askingOnly(rome, to), romes, base64.StdEncoding.EncodeToString([]byte(peer+":"+word)), 1)); got != want {
				t.Errorf("%s asks for %s: %d, want %d", peer, to, got, want)
			}
		}
	}
	if n := f.reached.Load(); n != 0 {
		t.Errorf("another host was reached %d times", n)
	}
}

// TestManyConnections: 10,000 connections of a peer that sends nothing, and as many as it may have that do, delay no other peer.
func TestManyConnections(t *testing.T) {
	many := 10000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < uint64(2*many+1000) {
		many = int(files.Cur)/2 - 500
		t.Logf("this process may open %d files: %d connections", files.Cur, many)
	}
	limits := Limits{Peer: 20, Waiting: 100, Request: time.Hour, Handshake: time.Hour}
	f := start(t, limits)
	hold := make([]net.Conn, 0, many)
	for range limits.Peer {
		one := f.dial(t)
		if got := ask(t, one, asking(rome, APIServer)); got != http.StatusOK {
			t.Fatalf("a connection within the limit is answered with %d", got)
		}
	}
	if got := ask(t, f.dial(t), asking(rome, Auth)); got != http.StatusTooManyRequests {
		t.Errorf("a connection beyond the limit is answered with %d", got)
	}
	for range many {
		one, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		hold = append(hold, one)
	}
	defer func() {
		for _, one := range hold {
			one.Close()
		}
	}()
	for range limits.Peer { // each over its own connection, as many as this peer may have
		if got, err := fetch(f.client(t, milan), APIServerURL+"/livez"); err != nil || got != "api /livez" {
			t.Errorf("another peer: %q, %v", got, err)
		}
	}
	if !ends(t, hold[0]) {
		t.Error("the oldest silent connection is still open")
	}
}

// ends reports whether the proxy has closed a connection, or closes it.
func ends(t *testing.T, connection net.Conn) bool {
	t.Helper()
	_ = connection.SetReadDeadline(time.Now().Add(time.Minute)) // a guard against hanging
	_, err := io.Copy(io.Discard, connection)
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// TestSlowClients: a client that does not go on loses its connection at each step, and gives its place back.
func TestSlowClients(t *testing.T) {
	f := start(t, Limits{
		Peer: 1, Total: 2, Request: 50 * time.Millisecond, Handshake: 50 * time.Millisecond, Idle: 50 * time.Millisecond,
		Write: 50 * time.Millisecond,
	})
	t.Run("no request", func(t *testing.T) {
		if !ends(t, f.dial(t)) {
			t.Error("still open")
		}
	})
	t.Run("a request in drops", func(t *testing.T) {
		one := f.dial(t)
		for _, char := range []byte(asking(rome, APIServer)) {
			if _, err := one.Write([]byte{char}); err != nil {
				return
			}
			if !quiet(one, 5*time.Millisecond) {
				return
			}
		}
		t.Error("the whole request was read")
	})
	for name, first := range map[string]string{"no handshake": "", "nothing after the start of a handshake": "\x16"} {
		t.Run(name, func(t *testing.T) {
			one := f.admitted(t, rome)
			_, _ = io.WriteString(one, first)
			if !ends(t, one) {
				t.Error("still open")
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		one := f.admitted(t, rome)
		_, _ = io.WriteString(one, "GET / HTTP/1.0\r\n\r\n") // the server answers that it wants TLS
		if !ends(t, one) {
			t.Error("still open")
		}
	})
	f.admitted(t, rome)
}

// admitted returns a connection of a peer to the API server, as soon as the peer may have one more.
func (f *fixture) admitted(t *testing.T, peer string) net.Conn {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		one := f.dial(t)
		got := ask(t, one, asking(peer, APIServer))
		if got == http.StatusOK {
			return one
		}
		if time.Now().After(deadline) {
			t.Fatalf("a connection that ended frees no place: %d", got)
		}
	}
}

// quiet waits for a moment in which nothing comes. It reports false if the other end closes the connection.
func quiet(connection net.Conn, moment time.Duration) bool {
	_ = connection.SetReadDeadline(time.Now().Add(moment))
	_, err := connection.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestTotal: the connections of all peers have a bound, and those that end free places.
func TestTotal(t *testing.T) {
	f := start(t, Limits{Peer: 2, Total: 2})
	first, second := f.dial(t), f.dial(t)
	for one, peer := range map[net.Conn]string{first: rome, second: milan} {
		if got := ask(t, one, asking(peer, APIServer)); got != http.StatusOK {
			t.Fatalf("answered with %d", got)
		}
	}
	if got := ask(t, f.dial(t), asking(milan, APIServer)); got != http.StatusServiceUnavailable {
		t.Errorf("a connection beyond the limit is answered with %d", got)
	}
	first.Close()
	f.admitted(t, milan)
}

// TestHalfClosed: the end of one direction reaches the other side, and the answer still comes back.
func TestHalfClosed(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		connection, err := echo.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		text, _ := io.ReadAll(connection)
		_, _ = connection.Write(append([]byte("all of "), text...))
	}()
	served, err := New(Options{Upstreams: map[string]Upstream{Auth: {Address: echo.Addr().String()}}, Key: testKey, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(ctx, listener) }()
	defer func() { cancel(); <-ended }()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	// The request and what follows it in one packet, as an eager client sends them.
	if _, err := io.WriteString(connection, asking(rome, Auth)+"early and "); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(connection, "late")
	_ = connection.(*net.TCPConn).CloseWrite()
	text, err := io.ReadAll(connection)
	if want := "all of early and late"; err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%q, %v; want %q at the end", text, err, want)
	}
}

// FuzzRequest: only the exact text of a destination, with the pass of a peer, leads to it, and nothing is lost of what follows the request.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		asking(rome, APIServer), asking(milan, Auth) + "\x16\x03", askingOnly(rome, Auth), askingOnly(rome, APIServer),
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT " + Auth + " HTTP/1.1\r\n" + pass(rome) + "\r\n",
		strings.Replace(asking(rome, Auth), "Basic ", "Basic  ", 1), strings.Replace(asking(rome, Auth), "\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n", 1), "\n", "",
	} {
		f.Add([]byte(seed))
	}
	known := func(to string) bool { return to == APIServer || to == Auth }
	f.Fuzz(func(t *testing.T, sent []byte) {
		got, refused := readConnect(bytes.NewReader(sent), testKey, known)
		if refused != nil {
			if refused.code < 400 || !strings.Contains(refused.answer(), "Connection: close\r\n") {
				t.Fatalf("refused with %q", refused.answer())
			}
			return
		}
		word, err := Pass(testKey, got.peer)
		some, _ := AuthPass(testKey, got.peer)
		has := func(word string) bool {
			return bytes.Contains(sent, []byte(base64.StdEncoding.EncodeToString([]byte(got.peer+":"+word))))
		}
		switch {
		case !known(got.to) || !bytes.HasPrefix(sent, []byte("CONNECT "+got.to+" HTTP/1.")):
			t.Fatalf("%q leads to %q", sent, got.to)
		case err != nil || !has(word) && (got.to != Auth || !has(some)):
			t.Fatalf("%q has no pass of %q", sent, got.peer)
		case !bytes.HasSuffix(sent[:min(len(sent), maxRequest)], got.early):
			t.Fatalf("%q is followed by %q", sent, got.early)
		}
	})
}

// TestHosts: the proxy leads to the hosts of the URLs that peers use.
func TestHosts(t *testing.T) {
	t.Parallel()
	for url, at := range map[string]string{discoveryv1alpha1.AuthURLInside: Auth, APIServerURL: APIServer} {
		if url+":443" != "https://"+at {
			t.Errorf("the URL is %s, and the proxy leads to %s", url, at)
		}
	}
}
