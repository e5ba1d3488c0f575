// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"crypto/tls"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"testing"
)

// TestOneAddress: behind a reverse proxy that ends TLS, the gateway has the address, the port and the certificate of another service. The proxy speaks HTTP or TLS
// behind itself.
func TestOneAddress(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			a, b := newGateway(t, 1, false), newGateway(t, 2, false)
			meet(a, b)
			toGateway := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: b.at.String()})
			toGateway.Transport = &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} //nolint:gosec // as ingress controllers do inside a cluster
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
			target := Target{Kind: WebSocket, Host: at.Addr().String(), Port: at.Port(), Path: "/liqo"}
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
