// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// Open listens at an address over TCP. Only what accepts connections by [Places] of its own needs it; others take [Listen].
func Open(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// bounded is a listener whose connections have places. With TLS, it returns those whose handshake is done.
type bounded struct {
	net.Listener
	places *Places
	tls    *tls.Config
	who    func(tls.ConnectionState) string
	failed func(net.Addr, error)

	start  sync.Once
	ready  chan net.Conn
	broken chan error
	// open ends with the listener.
	open  context.Context
	close context.CancelFunc
}

func (s *Server) bound(inner net.Listener) *bounded {
	l := &bounded{
		Listener: inner, places: NewPlaces(s.port.Limits), tls: s.port.TLS, who: s.port.Who, failed: s.logHandshake,
		ready: make(chan net.Conn), broken: make(chan error),
	}
	l.open, l.close = context.WithCancel(context.Background())
	return l
}

func (l *bounded) Accept() (net.Conn, error) {
	if l.tls == nil {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		return newConnection(raw, l.places.Enter(raw), l.places.limits), nil
	}
	l.start.Do(func() { go l.accept() })
	select {
	case connection := <-l.ready:
		return connection, nil
	case err := <-l.broken:
		return nil, err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener, and the handshakes that are not done.
func (l *bounded) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l *bounded) accept() {
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			place := l.places.Enter(raw)
			go l.secure(raw, place)
			continue
		}
		select {
		case l.broken <- err: // the server waits before it asks again
		case <-l.open.Done():
			return
		}
	}
}

// secure makes a connection secure and passes it to the server.
func (l *bounded) secure(raw net.Conn, place *Place) {
	first := &handshake{Conn: raw, place: place, left: hello}
	inner := tls.Server(first, l.tls)
	ctx, cancel := context.WithTimeout(l.open, l.places.limits.Arrive)
	defer cancel()
	err := inner.HandshakeContext(ctx)
	if err == nil {
		first.done()
		made := newConnection(inner, place, l.places.limits)
		if l.who != nil {
			if who := l.who(inner.ConnectionState()); who != "" && place.Keep(who) {
				made.trust(l.places.limits)
			}
		}
		select {
		case l.ready <- secured{made, inner}:
			return
		case <-l.open.Done():
		}
	} else {
		l.failed(raw.RemoteAddr(), err)
	}
	_ = raw.Close() // it is of no use
	place.Leave()
}

var errHello = errors.New("the client sent too much before its handshake was done")

// handshake counts what a client sends before its handshake is done.
type handshake struct {
	net.Conn
	place *Place
	left  int
	over  bool
}

// done ends the count. The handshake has returned, so no other goroutine reads.
func (h *handshake) done() {
	h.over = true
	h.place.release()
}

func (h *handshake) Read(to []byte) (int, error) {
	if h.over {
		return h.Conn.Read(to)
	}
	if h.left == 0 {
		return 0, errHello
	}
	n, err := h.Conn.Read(to[:min(len(to), h.left)])
	if h.left -= n; !h.place.hold(n) {
		return 0, net.ErrClosed
	}
	return n, err
}

// secured is a connection with TLS. The HTTP server asks for its state.
type secured struct {
	*connection
	tls *tls.Conn
}

func (s secured) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }
