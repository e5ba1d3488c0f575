// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/auth/endpoint"
)

// TestKeyExchange: a consumer and the service of its provider agree on keys that stay secret if X25519 falls, as ADR 38 states.
func TestKeyExchange(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	own := certificates.TLS.Certificates[0]
	free, err := net.Listen("tcp", kubetest.OwnAddress())
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	kubetest.Start(t, "service", func(ctx context.Context) error {
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		return endpoint.Serve(
			ctx, func() {},
			endpoint.Service(address, handler, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil }, logr.Discard()),
		)
	})
	client, err := New("https://"+address, Options{InsecureSkipTLSVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var state *tls.ConnectionState
	kubetest.Eventually(t, "the service answers", func() error {
		response, err := client.http.Get(client.url)
		if err != nil {
			return err
		}
		state = response.TLS
		return response.Body.Close()
	})
	if state.Version != tls.VersionTLS13 || state.CurveID != tls.X25519MLKEM768 {
		t.Errorf("%s with %s, want TLS 1.3 with X25519MLKEM768", tls.VersionName(state.Version), state.CurveID)
	}
}
