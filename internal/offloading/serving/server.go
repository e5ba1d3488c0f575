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
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// mostConnections bounds memory. Further clients wait in the kernel's queue.
	mostConnections = 1024
	headerTimeout   = 5 * time.Second
	idleTimeout     = 90 * time.Second
	// mostHeader allows for a long command in the query.
	mostHeader = 256 << 10
)

// Serve answers at listener until ctx ends, and ends every stream then. The handler sees the certificates that callers present, which it must
// verify.
func Serve(ctx context.Context, listener net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), handler http.Handler) error {
	return serve(ctx, listener, mostConnections, certificate, handler)
}

func serve(ctx context.Context, listener net.Listener, most int, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), handler http.Handler) error {
	logger := log.FromContext(ctx)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Any client can cause errors in TLS, so they are no errors of ours.
		ErrorLog: stdlog.New(errorLog{logger.V(1)}, "", 0),
		// A stream has a connection of its own, so mostConnections bounds the streams.
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificate, NextProtos: []string{"http/1.1"},
		// Each request is verified against the authorities that are valid at that time.
		ClientAuth: tls.RequestClientCert,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // handlers see the end of the context
	defer stop()
	err := server.Serve(tls.NewListener(netutil.LimitListener(listener, most), secure))
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve at %s: %w", listener.Addr(), err)
}

// errorLog passes the lines of a standard logger to another logger.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Info("connection failed", "why", strings.TrimSpace(string(line)))
	return len(line), nil
}
