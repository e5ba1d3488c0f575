// SPDX-License-Identifier: Apache-2.0

// Package endpoint is the HTTPS endpoint of the authentication service, and the HTTP endpoint of its probes. It limits
// the time, size and number of connections, because its clients are not authenticated.
//
// It must not know what is served, nor where the certificate comes from. The proof is endpoint_test.go.
package endpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/internal/kube/listener"
)

// maxRequestsEach is per connection, so that a proxy in front, which sees connections only, bounds requests by bounding connections. An honest
// client sends two for a renewal, and at most eight.
const maxRequestsEach = 8

// shutdownTimeout is longer than first contact may take.
const shutdownTimeout = 15 * time.Second

// limits bound what clients hold who have proven nothing. One network may have all places until others come, because clusters behind one NAT, or one node of
// this cluster, share an address: the more places, the longer the oldest connection lives while others are opened. A cluster that has
// proven its key keeps its connection; two, because it may be late to close one. The read timeout must be longer than a request takes, because its end
// would cancel the request.
func limits() listener.Limits {
	return listener.Limits{
		All: 512, Kept: 256, KeptEach: 2, Requests: maxRequestsEach, Arrive: 5 * time.Second,
		Idle: 2 * time.Second, Read: 20 * time.Second, Write: 25 * time.Second,
	}
}

// Server is what is served at one address.
type Server struct {
	address string
	port    listener.Port
}

// Service returns the server for unauthenticated clients. It speaks TLS if certificate is not nil.
func Service(address string, handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), log logr.Logger) Server {
	s := Server{address, listener.Port{Limits: limits(), Handler: handler, Log: log}}
	if certificate != nil {
		s.port.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	}
	return s
}

// Health returns the server for the kubelet's probes. check decides whether the process is ready.
func Health(address string, check func(context.Context) error) Server {
	return Server{address, listener.Port{Limits: listener.Small(), Handler: &probes{check: check}, Log: logr.Discard()}}
}

// Drained waits until no node sends connections to a pod any more that has been asked to end. Nodes observe that within two seconds.
func Drained() { time.Sleep(3 * time.Second) }

// Serve serves until ctx has ended and drained returns, or a server fails. It then lets the current requests finish.
func Serve(ctx context.Context, drained func(), servers ...Server) error {
	open := make([]*listener.Server, 0, len(servers))
	for _, server := range servers {
		one, err := listener.Listen(ctx, server.address, server.port)
		if err != nil {
			for _, other := range open {
				_ = other.Listener.Close() // it has no connection yet
			}
			return fmt.Errorf("listen: %w", err)
		}
		open = append(open, one)
	}
	group, ends := errgroup.WithContext(ctx)
	for _, server := range open {
		group.Go(func() error {
			return server.Drain(ends, func() {
				if ctx.Err() != nil { // otherwise a server has failed
					drained()
				}
			}, shutdownTimeout)
		})
	}
	return group.Wait()
}

// probes answers the kubelet. Once ready, the process stays ready: while the API server is unavailable, an answer with
// the reason is better for peers than none.
type probes struct {
	check func(context.Context) error
	ready atomic.Bool
}

func (p *probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
	case "/readyz":
		if p.ready.Load() {
			break
		}
		ctx, cancel := context.WithTimeout(r.Context(), 900*time.Millisecond) // the kubelet waits for a second
		defer cancel()
		if err := p.check(ctx); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		p.ready.Store(true)
	default:
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte("ok\n")) // the kubelet may have closed the connection
}
