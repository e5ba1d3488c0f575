// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	stdlog "log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/network/carrier/transport"
)

const (
	// maxWaiting and maxWaitingEach bound the connections that are not admitted yet, in total and from one address. Those behind an ingress controller share one.
	// Beyond that a new one replaces the oldest of the address with the most: a peer proves itself within a few round trips, a client that sends nothing would
	// keep its place for seconds.
	maxWaiting, maxWaitingEach = 256, 64
	maxHeader                  = 8 << 10
)

// Server accepts streams on one TCP port: TLS with our protocol, and WebSockets with or without TLS. The first byte of a connection shows which.
type Server struct {
	// Hub gets the streams.
	Hub *Hub
	// Path reports whether a WebSocket is accepted at a path.
	Path func(string) bool
	// Certificate of the outer TLS; nil for one that this process signs itself, since no client verifies it.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Log         logr.Logger

	once   sync.Once
	places *listener.Places
}

// waiting are the places of the connections that are not admitted yet.
func (s *Server) waiting() *listener.Places {
	s.once.Do(func() { s.places = newPlaces() })
	return s.places
}

// newPlaces returns places for connections that are not admitted yet.
func newPlaces() *listener.Places {
	return listener.NewPlaces(listener.Limits{All: maxWaiting, Each: maxWaitingEach})
}

// Serve accepts connections until ctx ends. It closes the listener.
func (s *Server) Serve(ctx context.Context, at net.Listener) error {
	if s.Certificate == nil {
		own, err := selfSigned(time.Now())
		if err != nil {
			return err
		}
		s.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil }
	}
	stop := context.AfterFunc(ctx, func() { _ = at.Close() })
	defer stop()
	for {
		conn, err := at.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // too many files: the next one may work
			s.Log.Error(err, "a connection was not accepted")
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		place := s.waiting().Enter(conn)
		go func() {
			defer place.Leave()
			if err := s.receive(ctx, conn); err != nil {
				s.Log.V(1).Info("connection closed", "remote", conn.RemoteAddr().String(), "reason", err.Error())
				_ = conn.Close() // it is of no use
			}
		}()
	}
}

// receive makes one connection a stream. All of it has one deadline.
func (s *Server) receive(ctx context.Context, raw net.Conn) error {
	transport.Tune(raw)
	raw = &transport.Ahead{Conn: raw}
	_ = raw.SetDeadline(time.Now().Add(transport.HelloTime))
	conn, secure, err := peek(raw)
	if err != nil {
		return err
	}
	if secure {
		server := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Certificate, NextProtos: []string{transport.Protocol, "http/1.1"}})
		if err := server.HandshakeContext(ctx); err != nil {
			return err
		}
		if server.ConnectionState().NegotiatedProtocol == transport.Protocol {
			return s.Hub.admit(server, raw, transport.TLS)
		}
		conn = server
	}
	return s.upgrade(conn, raw)
}

// peek reports whether a connection starts with TLS.
func peek(raw net.Conn) (conn net.Conn, secure bool, err error) {
	first := make([]byte, 1)
	if _, err := raw.Read(first); err != nil {
		return nil, false, err
	}
	const handshake = 0x16
	return &transport.Replayed{Conn: raw, First: first}, first[0] == handshake, nil
}

// upgrade answers one HTTP request: with a WebSocket at the path, else with 404.
func (s *Server) upgrade(conn, raw net.Conn) error {
	result, under := make(chan error, 2), &transport.Gathering{Conn: conn}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if !s.Path(r.URL.Path) || r.Header.Get("Upgrade") == "" {
			http.NotFound(w, r) // the server closes the connection when it has sent this
			return
		}
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols: []string{transport.Protocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		})
		if err == nil {
			stream := transport.NewBytesOver(socket, under)
			_ = stream.SetDeadline(time.Now().Add(transport.HelloTime))
			err = s.Hub.admit(stream, raw, transport.WebSocket)
		}
		result <- err
	})
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: transport.HelloTime, MaxHeaderBytes: maxHeader, Protocols: new(http.Protocols), ErrorLog: stdlog.New(discard{}, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				select {
				case result <- errors.New("no request for the tunnel"):
				default:
				}
			}
		},
	}
	server.Protocols.SetHTTP1(true)
	server.SetKeepAlivesEnabled(false)
	_ = server.Serve(&single{conn: under}) // it ends after the one connection
	return <-result
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }

// single is a listener with one connection.
type single struct{ conn net.Conn }

func (s *single) Accept() (net.Conn, error) {
	conn := s.conn
	if s.conn = nil; conn == nil {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }

// selfSigned is a certificate for the outer TLS.
func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const years = 10
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "liqo-gateway"}, NotBefore: now.AddDate(0, 0, -1), NotAfter: now.AddDate(years, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"liqo-gateway"},
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}, nil
}
