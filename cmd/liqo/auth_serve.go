// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/internal/offloading/serving"
	"liqo.io/liqo/internal/peering/auth/ratelimit"
)

const (
	// maxAuthConnections bounds memory: strangers wait in the kernel's queue, or give up.
	maxAuthConnections = 256
	// maxAuthConnectionsEach is for one address: who holds connections open leaves some for others. Clusters behind
	// one translator share an address.
	maxAuthConnectionsEach = 64
	// authShutdownTimeout is longer than first contact may take.
	authShutdownTimeout = 15 * time.Second
	// authCertificateLifetime: clients do not verify a certificate that nobody has signed, and some complain about old ones.
	authCertificateLifetime = 10 * 365 * 24 * time.Hour
	// authClockTolerance: peers whose clocks are behind find the certificate good, too.
	authClockTolerance = 7 * 24 * time.Hour
)

// authService is the server for strangers: no connection may be slow, large or long.
func authService(handler http.Handler, o authOptions, log logr.Logger) (*http.Server, error) {
	server := &http.Server{
		Addr: o.address, Handler: handler,
		// The time to read must not end before the answer: its end would end the request, too.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 25 * time.Second, IdleTimeout: 15 * time.Second,
		MaxHeaderBytes: 8 << 10,
		// What strangers do wrong in TLS is their affair.
		ErrorLog: stdlog.New(authErrorLog{log.V(1)}, "", 0),
		// One request at a time on a connection, so that maxAuthConnections means something.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	if !o.enableTLS {
		return server, nil
	}
	certificate, err := authCertificate(o)
	if err != nil {
		return nil, err
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	return server, nil
}

// authHealth is the server for probes of the kubelet.
func authHealth(address string, handler http.Handler) *http.Server {
	return &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, IdleTimeout: 15 * time.Second}
}

// serveAuth serves until ctx ends, or one server does; then it lets what is being answered come to its end.
func serveAuth(ctx context.Context, servers ...*http.Server) error {
	var listeners []net.Listener
	for _, server := range servers {
		listener, err := net.Listen("tcp", server.Addr)
		if err != nil {
			for _, other := range listeners {
				_ = other.Close() // nobody has connected yet
			}
			return fmt.Errorf("listen: %w", err)
		}
		listeners = append(listeners, listener)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, server := range servers {
		var listener net.Listener = newAuthListener(listeners[i], maxAuthConnections, maxAuthConnectionsEach)
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
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), authShutdownTimeout)
			defer cancel()
			if server.Shutdown(last) != nil {
				return server.Close()
			}
			return nil
		})
	}
	return group.Wait()
}

// authListener is a listener with at most so many connections as it has slots, and fewer from one address.
type authListener struct {
	net.Listener
	slots chan struct{}
	each  int

	mu   sync.Mutex
	from map[netip.Prefix]int
}

func newAuthListener(inner net.Listener, all, each int) *authListener {
	return &authListener{Listener: inner, slots: make(chan struct{}, all), each: each, from: map[netip.Prefix]int{}}
}

func (l *authListener) Accept() (net.Conn, error) {
	for {
		l.slots <- struct{}{}
		connection, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		address, _ := netip.ParseAddrPort(connection.RemoteAddr().String())
		network := ratelimit.NetworkOf(address.Addr())
		if !l.enter(network) {
			_ = connection.Close() // it has others
			<-l.slots
			continue
		}
		return &authConnection{Conn: connection, free: sync.OnceFunc(func() {
			l.leave(network)
			<-l.slots
		})}, nil
	}
}

func (l *authListener) enter(network netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[network] >= l.each {
		return false
	}
	l.from[network]++
	return true
}

func (l *authListener) leave(network netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[network]--; l.from[network] == 0 {
		delete(l.from, network)
	}
}

type authConnection struct {
	net.Conn
	free func()
}

func (s *authConnection) Close() error {
	defer s.free()
	return s.Conn.Close()
}

// authProbes answers the kubelet. Once ready, the process stays ready: if the API server goes away, peers are
// better served by an answer that says so than by none.
type authProbes struct {
	check func(context.Context) error
	ready atomic.Bool
}

func (p *authProbes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	_, _ = w.Write([]byte("ok\n")) // whoever asked may be gone
}

// authErrorLog writes what a standard logger says to another.
type authErrorLog struct{ log logr.Logger }

func (l authErrorLog) Write(line []byte) (int, error) {
	l.log.Info("connection failed", "why", strings.TrimSpace(string(line)))
	return len(line), nil
}

// authCertificate returns the certificate of the files, as they are now, or one that is made here and now.
func authCertificate(o authOptions) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if o.certPath == "" {
		certificate, err := selfSignedAuth(o.namespace, time.Now())
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }, err
	}
	files, err := serving.FromFiles(o.certPath, o.keyPath)
	return files.Get, err
}

// selfSignedAuth returns a certificate for the names and addresses under which the service is reached from within the cluster.
func selfSignedAuth(namespace string, now time.Time) (*tls.Certificate, error) {
	names := serving.Names{
		Common: "liqo-auth", Organization: "liqo.io",
		DNS: []string{"localhost", "liqo-auth", "liqo-auth." + namespace, "liqo-auth." + namespace + ".svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if host, err := os.Hostname(); err == nil {
		names.DNS = append(names.DNS, host)
	}
	if ip := net.ParseIP(os.Getenv("POD_IP")); ip != nil {
		names.IPs = append(names.IPs, ip)
	}
	return serving.SelfSigned(names, now.Add(-authClockTolerance), now.Add(authCertificateLifetime))
}
