// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// chunk is how much of one direction is in memory, in bytes.
const chunk = 8 << 10

// connect connects a client with its destination until one of them ends the connection.
func (p *Proxy) connect(ctx context.Context, client net.Conn, request connect) {
	limits := &p.options.Limits
	upstream := p.options.Upstreams[request.to]
	dialer := net.Dialer{Timeout: limits.Dial, KeepAlive: 15 * time.Second}
	server, err := dialer.DialContext(ctx, "tcp", upstream.Address)
	_ = client.SetDeadline(time.Now().Add(limits.Handshake))
	if err != nil {
		if p.failed.allow(time.Now()) {
			p.options.Log.Error(err, "destination not reached", "destination", request.to)
		}
		p.refuse(client, request.peer, errUpstream)
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if _, err := client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	ended := client
	if len(request.early) > 0 {
		ended = &replayed{Conn: client, early: request.early}
	}
	if upstream.TLS != nil {
		secured := tls.Server(ended, upstream.TLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			return
		}
		ended = secured
	}
	(&pipe{limits: limits, started: time.Now(), client: ended, server: server}).run()
}

// replayed is a connection of which a part has been read.
type replayed struct {
	net.Conn
	early []byte
}

func (r *replayed) Read(into []byte) (int, error) {
	if len(r.early) == 0 {
		return r.Conn.Read(into)
	}
	n := copy(into, r.early)
	r.early = r.early[n:]
	return n, nil
}

// CloseWrite ends one direction.
func (r *replayed) CloseWrite() error { return closeWrite(r.Conn) }

// pipe carries bytes between two connections.
type pipe struct {
	limits         *Limits
	started        time.Time
	client, server net.Conn
	// last is when something was carried, spoke whether each end has sent something.
	last  atomic.Int64
	spoke [2]atomic.Bool
}

func (p *pipe) run() {
	p.last.Store(p.started.UnixNano())
	var both sync.WaitGroup
	both.Go(func() { p.carry(p.server, p.client, 0) })
	both.Go(func() { p.carry(p.client, p.server, 1) })
	both.Wait()
}

// carry copies one direction until its end. An error ends the other one as well.
func (p *pipe) carry(to, from net.Conn, end int) {
	buffer := make([]byte, chunk)
	for {
		_ = from.SetReadDeadline(p.deadline())
		n, err := from.Read(buffer)
		if n > 0 {
			p.spoke[end].Store(true)
			p.last.Store(time.Now().UnixNano())
			_ = to.SetWriteDeadline(time.Now().Add(p.limits.Write))
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(p.deadline()):
			// The other direction has carried something meanwhile.
		case errors.Is(err, io.EOF):
			if closeWrite(to) == nil {
				return
			}
			fallthrough
		default:
			_, _ = p.client.Close(), p.server.Close()
			return
		}
	}
}

// deadline is when the connection ends unless something is carried.
func (p *pipe) deadline() time.Time {
	if !p.spoke[0].Load() || !p.spoke[1].Load() {
		return p.started.Add(p.limits.Handshake)
	}
	return time.Unix(0, p.last.Load()).Add(p.limits.Idle)
}

func closeWrite(connection net.Conn) error {
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
