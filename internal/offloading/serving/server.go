// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/listener"
)

// Limits bound memory, and have places for an API server that opens many streams at once. It shows a certificate, and then keeps its connections however
// many others come; its headers may be long, because they hold a command.
func Limits() listener.Limits {
	return listener.Limits{All: 256, Each: 64, Kept: 1024, HeaderKept: 256 << 10, Idle: 90 * time.Second}
}

// Serve answers at a port until ctx ends, and ends every stream then. who returns the client that a certificate proves, "" for none; the handler sees the
// certificates, and must verify them for each request.
func Serve(
	ctx context.Context, at net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	who func(tls.ConnectionState) string, handler http.Handler,
) error {
	return listener.On(at, listener.Port{
		Limits: Limits(), Handler: handler, Who: who, Log: log.FromContext(ctx),
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate,
			// Each request is verified against the authorities that are valid at that time.
			ClientAuth: tls.RequestClientCert,
		},
	}).Serve(ctx)
}
