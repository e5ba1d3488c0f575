// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/client"
)

func TestIDs(t *testing.T) {
	b := newEnv(t, nil)
	b.clock.advance(24 * time.Hour)
	ids, err := b.client.IDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ids.ClusterID != provider.ClusterID || ids.ClusterName != provider.ClusterName ||
		ids.Protocol != auth.ProtocolRange || len(ids.Capabilities) == 0 || ids.Version == "" {
		t.Errorf("%+v", ids)
	}
	if !ids.Date.Equal(b.clock.Now()) {
		t.Errorf("the provider's clock is %s, read as %s", b.clock.Now(), ids.Date)
	}
	if facts := ids.TLS; facts.Trusted || facts.Problem == "" || !facts.SelfSigned ||
		facts.NotAfter.IsZero() || len(facts.Fingerprint) != 64 || !strings.HasPrefix(facts.Version, "TLS 1.") {
		t.Errorf("%+v", facts)
	}
}

// Any answer of any server becomes a typed error of one short clean line without the token.
func TestHostileAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   error
	}{
		{"page of a proxy", page(200, "<html>log in</html>"), auth.ErrUnreachable},
		{"401 of a proxy", page(401, "Unauthorized"), auth.ErrUnreachable},
		{"403 of a proxy", page(403, `{"error":"forbidden"}`), auth.ErrUnreachable},
		{"502 of a proxy", page(502, "Bad Gateway"), auth.ErrUnreachable},
		{"code that is not the status", page(500, `{"code":403,"reason":"KeyConflict","message":"x"}`), auth.ErrUnreachable},
		{"denied", page(401, `{"code":401,"reason":"Denied","message":"no"}`), auth.ErrDenied},
		{"failure", page(503, `{"code":503,"reason":"Unavailable","message":"no"}`), auth.ErrUnavailable},
		{"reason of the future", page(403, `{"code":403,"reason":"TooSmall","message":"no"}`), auth.ErrConflict},
		{"version", page(400, `{"code":400,"reason":"VersionMismatch","message":"no"}`), auth.ErrVersion},
		{"terminal", page(401, `{"code":401,"reason":"Denied","message":"\u001b[2J\r\n\u202e"}`), auth.ErrDenied},
		{"echo", page(401, `{"code":401,"reason":"Denied","message":"`+goodToken+`"}`), auth.ErrDenied},
		{"long message", page(401, `{"code":401,"reason":"Denied","message":"`+strings.Repeat("x", 100000)+`"}`), auth.ErrDenied},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, auth.ErrUnreachable},
		{"silent", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client went away only when it has read all
			<-r.Context().Done()
		}, auth.ErrUnreachable},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, auth.ErrUnreachable},
		{"grant without token", page(200, `{"namespace":"n","expiresIn":3600,"apiServerUrl":"https://192.0.2.1"}`), auth.ErrUnreachable},
		{"grant for ever", page(200, `{"namespace":"n","token":"t","expiresIn":99999999999,"apiServerUrl":"https://192.0.2.1"}`), auth.ErrUnreachable},
		{"grant elsewhere", page(200, `{"namespace":"n","token":"t","expiresIn":3600,"apiServerUrl":"http://192.0.2.1"}`), auth.ErrUnreachable},
		{"grant with newline", page(200, `{"namespace":"n","token":"t\r\nX: y","expiresIn":3600,"apiServerUrl":"https://192.0.2.1"}`), auth.ErrUnreachable},
		{"challenge without end", page(400, `{"code":400,"reason":"ChallengeNeeded","message":"again"}`), auth.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewTLSServer(c.answer)
			t.Cleanup(server.Close)
			options := client.Options{InsecureSkipTLSVerify: true}
			if c.name == "silent" {
				options.Timeout = 100 * time.Millisecond // an answer within it would be a defect, however slow the machine is
			}
			client, err := client.New(server.URL, options)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Register(t.Context(), registration("key"))
			var refusal *auth.Error
			if !errors.Is(err, c.want) || !errors.As(err, &refusal) {
				t.Fatalf("%v; want %v", err, c.want)
			}
			if text := err.Error(); len(text) > 1024 || strings.Contains(text, goodToken) || strings.ContainsAny(text, "\x1b\r\n\u202e") {
				t.Errorf("%q", text)
			}
			if _, err := client.Renew(t.Context(), milan, consumer, newKey("key")); err == nil {
				t.Error("renewed")
			}
			if _, err := client.IDs(t.Context()); err == nil {
				t.Error("has an ID")
			}
			client.Close()
		})
	}
}

func page(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text) // the client may have hung up
	}
}

// The token is not sent to the target of a redirect.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	if _, err := dial(t, server.URL).Register(t.Context(), registration("key")); !errors.Is(err, auth.ErrUnreachable) || followed.Load() != 0 {
		t.Errorf("%v; %d requests went elsewhere", err, followed.Load())
	}
}

func TestTLSIsVerified(t *testing.T) {
	b := newEnv(t, nil)
	client, err := client.New(b.url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var untrusted *tls.CertificateVerificationError
	if _, err := client.IDs(t.Context()); !errors.Is(err, auth.ErrUnreachable) || !errors.As(err, &untrusted) {
		t.Errorf("%v", err)
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // now nothing listens there
	client := dial(t, "https://"+listener.Addr().String())
	if _, err := client.IDs(t.Context()); !errors.Is(err, auth.ErrUnreachable) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Renew(ended, milan, consumer, newKey("key")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestProxy(t *testing.T) {
	b := newEnv(t, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		request, err := http.ReadRequest(bufio.NewReader(connection))
		if err != nil {
			return
		}
		asked <- request.Method + " " + request.Host
		server, err := net.Dial("tcp", request.Host)
		if err != nil {
			return
		}
		defer server.Close()
		fmt.Fprint(connection, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(server, connection) }()
		_, _ = io.Copy(connection, server)
	}()
	client, err := client.New(b.url, client.Options{InsecureSkipTLSVerify: true, ProxyURL: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.IDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := <-asked, "CONNECT "+strings.TrimPrefix(b.url, "https://"); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestNewClient(t *testing.T) {
	for _, url := range []string{
		"", "milan", "http://milan", "https://", "https://a:secret@milan", "https://milan?x=secret", "https://milan#secret", "ftp://milan",
		"https://milan:port", "\x00",
	} {
		if _, err := client.New(url, client.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, proxy := range []string{"milan", "socks://milan", "http://", "://"} {
		if _, err := client.New("https://milan", client.Options{ProxyURL: proxy}); err == nil {
			t.Errorf("proxy %q passed", proxy)
		}
	}
	if _, err := (&client.Client{}).Register(t.Context(), client.Registration{}); err == nil {
		t.Error("registered without a key")
	}
}
