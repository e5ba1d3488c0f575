// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// mostConnections bounds memory; who comes then waits in the kernel's queue.
	mostConnections = 1024
	headerTimeout   = 5 * time.Second
	idleTimeout     = 90 * time.Second
	// mostHeader has room for a long command in the query.
	mostHeader = 256 << 10
)

// Serve answers at listener until ctx ends, and ends every stream then. The handler sees the certificates that callers present; nobody has
// verified them.
func Serve(ctx context.Context, listener net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), handler http.Handler) error {
	logger := log.FromContext(ctx)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// What strangers do wrong in TLS is their affair.
		ErrorLog: stdlog.New(errorLog{logger.V(1)}, "", 0),
		// A stream has its connection; so that mostConnections means something.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificate, NextProtos: []string{"http/1.1"},
		// Verified with each request, by the authorities that hold then.
		ClientAuth: tls.RequestClientCert,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // whoever is connected has been told by the context
	defer stop()
	err := server.Serve(tls.NewListener(&bounded{Listener: listener, slots: make(chan struct{}, mostConnections), done: ctx.Done()}, secure))
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve at %s: %w", listener.Addr(), err)
}

// bounded is a listener with at most so many connections as it has slots.
type bounded struct {
	net.Listener
	slots chan struct{}
	done  <-chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	connection, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slot{Conn: connection, free: sync.OnceFunc(func() { <-b.slots })}, nil
}

type slot struct {
	net.Conn
	free func()
}

func (s *slot) Close() error {
	defer s.free()
	return s.Conn.Close()
}

// errorLog writes what a standard logger says to another.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Info("connection failed", "why", strings.TrimSpace(string(line)))
	return len(line), nil
}
