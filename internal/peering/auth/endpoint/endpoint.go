// SPDX-License-Identifier: Apache-2.0

// Package endpoint is the HTTPS endpoint of the authentication service, and the HTTP endpoint of its probes. It limits
// the time, size and number of connections, because its clients are not authenticated.
//
// It must not know what is served, nor where the certificate comes from. The proof is endpoint_test.go.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/internal/peering/auth/ratelimit"
)

const (
	// maxConnections bounds memory. Other clients wait in the kernel's queue.
	maxConnections = 256
	// maxConnectionsEach is per network, so that a client that holds connections open leaves some for others. It is not
	// smaller, because clusters behind one NAT share an address.
	maxConnectionsEach = 64
	// maxRequestsEach is per connection, so that a proxy in front, which sees connections only, bounds requests by bounding connections. An honest
	// client sends two for a renewal, and at most eight.
	maxRequestsEach = 8
	// shutdownTimeout is longer than first contact may take.
	shutdownTimeout = 15 * time.Second
)

// Service returns the server for unauthenticated clients. It speaks TLS if certificate is not nil.
func Service(address string, handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), log logr.Logger) *http.Server {
	server := &http.Server{
		Addr: address, Handler: countedRequests(handler), ConnContext: countRequests,
		// The read timeout must be longer than a request takes, because its end would cancel the request.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 25 * time.Second, IdleTimeout: 15 * time.Second,
		MaxHeaderBytes: 8 << 10,
		// TLS errors of unauthenticated clients are no errors of ours.
		ErrorLog: stdlog.New(errorLog{log.V(1)}, "", 0),
		// HTTP/1 has one request at a time on a connection, so that maxConnections bounds the requests.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	if certificate != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	}
	return server
}

// requestsKey is the key of the number of requests on a connection, in the context of its requests.
type requestsKey struct{}

func countRequests(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, requestsKey{}, new(atomic.Int32))
}

// countedRequests ends a connection after its last request.
func countedRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, ok := r.Context().Value(requestsKey{}).(*atomic.Int32); ok && n.Add(1) >= maxRequestsEach {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Health returns the server for the kubelet's probes. check decides whether the process is ready.
func Health(address string, check func(context.Context) error) *http.Server {
	return &http.Server{Addr: address, Handler: &probes{check: check}, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, IdleTimeout: 15 * time.Second}
}

// Drained waits until no node sends connections to a pod any more that has been asked to end. Nodes observe that within two seconds.
func Drained() { time.Sleep(3 * time.Second) }

// Serve serves until ctx has ended and drained returns, or a server fails. It then lets the current requests finish.
func Serve(ctx context.Context, drained func(), servers ...*http.Server) error {
	var listeners []net.Listener
	for _, server := range servers {
		listener, err := net.Listen("tcp", server.Addr)
		if err != nil {
			for _, other := range listeners {
				_ = other.Close() // it has no connection yet
			}
			return fmt.Errorf("listen: %w", err)
		}
		listeners = append(listeners, listener)
	}
	group, ends := errgroup.WithContext(ctx)
	for i, server := range servers {
		var listener net.Listener = newListener(listeners[i], maxConnections, maxConnectionsEach)
		if server.TLSConfig != nil {
			listener = tls.NewListener(listener, server.TLSConfig)
		}
		group.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", server.Addr, err)
			}
			return nil
		})
		group.Go(func() error {
			<-ends.Done()
			if ctx.Err() != nil { // otherwise a server has failed
				drained()
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			if server.Shutdown(last) != nil {
				return server.Close()
			}
			return nil
		})
	}
	return group.Wait()
}

// boundedListener limits the open connections: one per slot, and each per network.
type boundedListener struct {
	net.Listener
	slots chan struct{}
	each  int

	mu   sync.Mutex
	from map[netip.Prefix]int
}

func newListener(inner net.Listener, all, each int) *boundedListener {
	return &boundedListener{Listener: inner, slots: make(chan struct{}, all), each: each, from: map[netip.Prefix]int{}}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		l.slots <- struct{}{}
		accepted, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		address, _ := netip.ParseAddrPort(accepted.RemoteAddr().String())
		network := ratelimit.NetworkOf(address.Addr())
		if !l.enter(network) {
			_ = accepted.Close() // the network has enough
			<-l.slots
			continue
		}
		return &boundedConnection{Conn: accepted, free: sync.OnceFunc(func() {
			l.leave(network)
			<-l.slots
		})}, nil
	}
}

func (l *boundedListener) enter(network netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[network] >= l.each {
		return false
	}
	l.from[network]++
	return true
}

func (l *boundedListener) leave(network netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[network]--; l.from[network] == 0 {
		delete(l.from, network)
	}
}

type boundedConnection struct {
	net.Conn
	free func()
}

func (c *boundedConnection) Close() error {
	defer c.free()
	return c.Conn.Close()
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

// errorLog passes the lines of a standard logger to a logr.Logger.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Info("connection failed", "reason", strings.TrimSpace(string(line)))
	return len(line), nil
}
