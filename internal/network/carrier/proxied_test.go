// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// TestOneAddress: behind a reverse proxy that ends TLS, the gateway has the address, the port and the certificate of another service. The proxy
// speaks HTTP or TLS behind itself.
func TestOneAddress(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			a, b := newGateway(t, 1, false), newGateway(t, 2, false)
			meet(a, b)
			toGateway := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: b.at.String()})
			toGateway.Transport = &http.Transport{
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
			} //nolint:gosec // as ingress controllers do inside a cluster
			toGateway.ErrorLog = stdlog.New(io.Discard, "", 0)
			mux := http.NewServeMux()
			mux.Handle("/liqo", toGateway)
			mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "authentication") })
			front := httptest.NewTLSServer(mux)
			defer front.Close()
			defer a.hub.Hangup(b.public)
			address, err := url.Parse(front.URL)
			must(t, err)
			at, err := netip.ParseAddrPort(address.Host)
			must(t, err)
			target := transport.Target{Kind: transport.WebSocket, Host: at.Addr().String(), Port: at.Port(), Path: "/liqo"}
			must(t, Probe(t.Context(), target))
			must(t, a.hub.Dial(t.Context(), b.public, target))
			pings(t, a, b)
			pings(t, b, a)
			response, err := front.Client().Get(front.URL + "/ids")
			must(t, err)
			defer response.Body.Close()
			if text, _ := io.ReadAll(response.Body); string(text) != "authentication" {
				t.Errorf("the other service answers %q", text)
			}
			if err := a.hub.Dial(t.Context(), Key{9}, target); err == nil {
				t.Error("a stream with an unknown peer")
			}
			other := target
			other.Path = "/ids"
			if err := Probe(t.Context(), other); err == nil {
				t.Error("the other service answers as a gateway")
			}
		})
	}
}

// TestAttackNL6Proxy: a peer announces a name that the network behind the HTTP proxy knows. The proxy is never asked for the name: only for an address that
// the gateway has looked up and checked.
func TestAttackNL6Proxy(t *testing.T) {
	var asked atomic.Value
	asked.Store("")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	must(t, err)
	inside := netip.MustParseAddr("10.0.0.7")
	target := func(addresses ...netip.Addr) transport.Target {
		return transport.Target{
			Kind: transport.TLS, Host: "vault.internal.example", Port: 443, Proxy: func(string) (*url.URL, error) { return at, nil },
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				if len(addresses) == 0 {
					return nil, errors.New("no such host")
				}
				return addresses, nil
			},
			Refuse: func(address netip.Addr) error {
				if address == inside {
					return errors.New("refused")
				}
				return nil
			},
		}
	}
	for want, addresses := range map[string][]netip.Addr{"": nil, " ": {inside}, "203.0.113.7:443": {inside, netip.MustParseAddr("203.0.113.7")}} {
		asked.Store("")
		if _, _, err := transport.Connect(t.Context(), target(addresses...)); err == nil {
			t.Errorf("%v: connected", addresses)
		}
		if got := asked.Load(); got != strings.TrimSpace(want) {
			t.Errorf("%v: the proxy is asked for %q, want %q", addresses, got, want)
		}
	}
}
