// SPDX-License-Identifier: Apache-2.0

package listener

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
)

type Port struct {
	Limits  Limits
	Handler http.Handler
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	// Who, if it is not nil, returns who a client has proven to be by its certificate, "" if that is unknown.
	Who func(tls.ConnectionState) string
	Log logr.Logger
}

// Server serves a port. It speaks HTTP/1, which has one request at a time on a connection, so that the bounds on connections bound requests and streams.
type Server struct {
	// HTTP and Listener belong together, for those who start a server themselves.
	HTTP     *http.Server
	Listener net.Listener
	port     Port
}

// Listen returns a server that listens at an address.
func Listen(ctx context.Context, address string, p Port) (*Server, error) {
	inner, err := Open(ctx, address)
	if err != nil {
		return nil, err
	}
	return On(inner, p), nil
}

func On(inner net.Listener, p Port) *Server {
	p.Limits = p.Limits.complete()
	if p.TLS != nil {
		p.TLS = p.TLS.Clone()
		p.TLS.NextProtos = []string{"http/1.1"}
	}
	s := &Server{port: p, HTTP: &http.Server{
		Addr: inner.Addr().String(), Handler: counted(p.Handler, p.Limits.Requests),
		ReadHeaderTimeout: p.Limits.Arrive, IdleTimeout: p.Limits.Idle, ReadTimeout: p.Limits.Read, WriteTimeout: p.Limits.Write,
		// Those who have proven nothing end earlier, see connection.
		MaxHeaderBytes: max(p.Limits.Header, p.Limits.HeaderKept),
		ConnContext:    inContext, ConnState: restart, Protocols: new(http.Protocols),
		// Any client can cause errors, so they are no errors of ours.
		ErrorLog: stdlog.New(errorLog{p.Log.V(1)}, "", 0),
	}}
	s.HTTP.Protocols.SetHTTP1(true)
	s.Listener = s.bound(inner)
	return s
}

// Serve serves until ctx ends, and ends every connection then. The context of each request ends with ctx.
func (s *Server) Serve(ctx context.Context) error {
	s.HTTP.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = s.HTTP.Close() }) // handlers see the end of the context
	defer stop()
	if err := s.HTTP.Serve(s.Listener); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", s.HTTP.Addr, err)
	}
	return nil
}

// Drain serves until ctx ends and drained returns. It then lets the current requests finish, but not for longer than most.
func (s *Server) Drain(ctx context.Context, drained func(), most time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- s.HTTP.Serve(s.Listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve at %s: %w", s.HTTP.Addr, err)
	case <-ctx.Done():
	}
	drained()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	if s.HTTP.Shutdown(last) != nil {
		return s.HTTP.Close()
	}
	return nil
}

func (s *Server) logHandshake(from net.Addr, err error) {
	s.port.Log.V(1).Info("connection failed", "remote", from.String(), "reason", err.Error())
}

// errorLog passes the lines of a standard logger to another logger.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Info("connection failed", "reason", strings.TrimSpace(string(line)))
	return len(line), nil
}

// key is the key of the connection in the context of its requests.
type key struct{}

func inContext(ctx context.Context, c net.Conn) context.Context {
	if own := connectionOf(c); own != nil {
		return context.WithValue(ctx, key{}, own)
	}
	return ctx
}

func connectionOf(c net.Conn) *connection {
	switch c := c.(type) {
	case *connection:
		return c
	case secured:
		return c.connection
	}
	return nil
}

// restart counts headers again after a request.
func restart(c net.Conn, state http.ConnState) {
	if own := connectionOf(c); own != nil && state == http.StateIdle {
		own.next()
	}
}

// counted ends a connection after its last request.
func counted(next http.Handler, most int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own, is := r.Context().Value(key{}).(*connection); is && most > 0 && int(own.requests.Add(1)) >= most {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Keep gives the connection of a request a place of those who have proven who they are, if there is one. The caller has just checked the proof. ctx is that
// of the request.
func Keep(ctx context.Context, who string) {
	if own, is := ctx.Value(key{}).(*connection); is {
		own.place.Keep(who)
	}
}

// Prefer lets the others of its network end before the connection of a request: what its client has started counts against another limit.
func Prefer(ctx context.Context) {
	if own, is := ctx.Value(key{}).(*connection); is {
		own.place.Prefer()
	}
}
