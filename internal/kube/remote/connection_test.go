// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// startServer starts an HTTPS server and returns an identity there.
func startServer(t *testing.T, handler http.HandlerFunc) (*httptest.Server, Identity) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	identity := testIdentity()
	identity.ProxyURL, identity.APIServerURL = "", server.URL
	identity.APIServerCA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server, identity
}

func connection(t *testing.T, i Identity) *Connection {
	t.Helper()
	c, err := NewConnection(i, clientgoscheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Reset)
	return c
}

func TestProbe(t *testing.T) {
	var status atomic.Int32
	var token, path atomic.Value
	_, identity := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("Authorization"))
		path.Store(r.URL.Path)
		w.WriteHeader(int(status.Load()))
	})
	c := connection(t, identity)
	for code, want := range map[int]func(error) bool{
		http.StatusOK:                  func(err error) bool { return err == nil },
		http.StatusForbidden:           func(err error) bool { return err == nil },
		http.StatusUnauthorized:        func(err error) bool { return errors.Is(err, ErrUnauthorized) },
		http.StatusInternalServerError: func(err error) bool { return err != nil && !errors.Is(err, ErrUnauthorized) },
	} {
		status.Store(int32(code))
		if err := c.Probe(t.Context()); !want(err) {
			t.Errorf("answer %d: %v", code, err)
		}
	}
	if path.Load() != "/livez" || token.Load() != "Bearer "+identity.Token {
		t.Errorf("request of %v with %v", path.Load(), token.Load())
	}

	// The same connection, another token; then another address.
	identity.Token = "renewed"
	if restarted, err := c.Update(identity); restarted || err != nil {
		t.Errorf("a new token: restarted %t, %v", restarted, err)
	}
	_ = c.Probe(t.Context())
	if token.Load() != "Bearer renewed" {
		t.Errorf("request with %v after the renewal", token.Load())
	}
	moved := identity
	moved.APIServerURL += "/elsewhere"
	if restarted, err := c.Update(moved); !restarted || err != nil {
		t.Errorf("a new address: restarted %t, %v", restarted, err)
	}
	_ = c.Probe(t.Context())
	if path.Load() != "/elsewhere/livez" {
		t.Errorf("request of %v after the address changed", path.Load())
	}
}

// TestProbeWithoutEnd: a server that answers without end is none that can be used.
func TestProbeWithoutEnd(t *testing.T) {
	_, identity := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for part := bytes.Repeat([]byte("x"), 32<<10); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	if err := connection(t, identity).Probe(t.Context()); err == nil {
		t.Error("the probe has succeeded")
	}
}

// TestProbeRepeatsNoText: the text beside the status code is controlled by the other side, so no error quotes it.
func TestProbeRepeatsNoText(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer line.Close()
		if _, err := fmt.Fprintf(line, "HTTP/1.1 500 \x1b[31m%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", strings.Repeat("a", 1<<20)); err != nil {
			t.Error(err)
		}
	}))
	server.StartTLS() // HTTP/1.1, where a status has a text
	t.Cleanup(server.Close)
	identity := testIdentity()
	identity.ProxyURL, identity.APIServerURL = "", server.URL
	identity.APIServerCA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	err := connection(t, identity).Probe(t.Context())
	if err == nil || err.Error() != "GET /livez was answered with 500 Internal Server Error" {
		t.Errorf("%.200q", fmt.Sprint(err))
	}
}

func TestProbeKeepsTheCallersDeadline(t *testing.T) {
	never := make(chan struct{})
	_, identity := startServer(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-never:
		}
	})
	defer close(never)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := connection(t, identity).Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestProbeAfterReset: a probe does not fail because Reset has just closed its connection.
func TestProbeAfterReset(t *testing.T) {
	_, identity := startServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	c := connection(t, identity)
	for round := range 300 {
		if err := c.Probe(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c.Reset()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEveryCallHasADeadline(t *testing.T) {
	token := "t"
	for name, test := range map[string]struct {
		query  string
		answer bool
		body   bool // the deadline also holds for the body
	}{
		"call without an answer":          {"", false, false},
		"watch without an answer":         {"?watch=true", false, false},
		"call whose answer never ends":    {"", true, true},
		"watch that goes on for an hour":  {"?watch=1", true, false},
		"log that is followed for longer": {"?follow=true", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &transport{next: roundTripper(func(r *http.Request) (*http.Response, error) {
					if !test.answer {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					reader, writer := io.Pipe()
					context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(r.Context().Err()) })
					return &http.Response{StatusCode: http.StatusOK, Body: reader}, nil
				})}
				rt.token = &atomic.Pointer[string]{}
				rt.token.Store(&token)
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/api"+test.query, nil)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				response, err := rt.RoundTrip(request)
				if !test.answer {
					if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != callTimeout {
						t.Errorf("%v after %s", err, took)
					}
					return
				}
				read := make(chan error, 1)
				go func() { _, err := response.Body.Read(make([]byte, 1)); read <- err }()
				select {
				case <-read:
					if !test.body {
						t.Error("the stream was cut")
					}
					if took := time.Since(start); took != callTimeout {
						t.Errorf("cut after %s", took)
					}
				case <-time.After(time.Hour):
					if test.body {
						t.Error("no deadline while the answer is read")
					}
				}
				_ = response.Body.Close()
				synctest.Wait()
			})
		})
	}
}

func TestProxy(t *testing.T) {
	_, identity := startServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Header.Get("Proxy-Authorization"))
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		// The server may have read the first byte of the client already.
		go func() { _, _ = io.Copy(to, buffered); _ = to.Close() }()
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}))
	t.Cleanup(proxy.Close)
	identity.ProxyURL = "http://user:pass@" + proxy.Listener.Addr().String()
	c := connection(t, identity)
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != "CONNECT Basic dXNlcjpwYXNz" {
		t.Errorf("the proxy received %v", asked.Load())
	}
	c.Reset() // the proxy's connections end with it
}

// TestRealAPIServer: the next request carries the new token, and an unknown token is answered with 401. (Package
// replicate tests that a renewal does not interrupt watches.)
func TestRealAPIServer(t *testing.T) {
	config := kubetest.Cluster(t)
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "peer"}}
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	identity := testIdentity()
	identity.ProxyURL, identity.APIServerURL, identity.APIServerCA, identity.Token = "", config.Host, config.CAData, request.Status.Token
	c := connection(t, identity)
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The API server accepts the token; the account has no rights.
	err = c.Client().List(t.Context(), &corev1.PodList{}, client.InNamespace("default"))
	if !apierrors.IsForbidden(err) {
		t.Errorf("list with a good token: %v", err)
	}
	identity.Token = "nonsense"
	if _, err := c.Update(identity); err != nil {
		t.Fatal(err)
	}
	if err := c.Client().List(t.Context(), &corev1.PodList{}, client.InNamespace("default")); !apierrors.IsUnauthorized(err) {
		t.Errorf("list with a bad token: %v", err)
	}
	if err := c.Probe(t.Context()); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("probe with a bad token: %v", err)
	}
	if c.Config().BearerToken != "" {
		t.Error("Config carries the token")
	}
}

// TestHostileAnswers: whatever the other API server answers, it costs little memory, and no redirect is followed.
func TestHostileAnswers(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	var sent atomic.Int64
	_, identity := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		if r.Header.Get("Accept-Encoding") == "gzip" {
			t.Errorf("%s asks for compression", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		for chunk := make([]byte, 1<<20); ; {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil || sent.Load() > 1<<30 {
				return
			}
		}
	})
	c := connection(t, identity)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
	clients, err := kubernetes.NewForConfigAndClient(c.Config(), c.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Pods("a").Get(t.Context(), "b", metav1.GetOptions{}); err == nil {
		t.Error("an endless answer was accepted")
	}
	if sent.Load() > 4*mostBody {
		t.Errorf("%d bytes were read, want at most about %d", sent.Load(), mostBody)
	}
	if _, err := clients.CoreV1().Pods("a").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil {
		t.Error("a redirect was accepted as a success")
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed, with our token")
	}
}
