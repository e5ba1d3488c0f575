// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Gathering collects small writes. The WebSocket library writes 4 KiB at a time, and each would be a TLS record and a system call.
type Gathering struct {
	net.Conn
	mu sync.Mutex
	// on: writes wait for flush. It is off while HTTP is spoken.
	on     bool
	buffer []byte
}

// most is how much is gathered, in bytes.
const most = 64 << 10

func (g *Gathering) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on {
		return g.Conn.Write(text)
	}
	g.buffer = append(g.buffer, text...)
	if len(g.buffer) < most {
		return len(text), nil
	}
	return len(text), g.send()
}

// send writes the buffer. The lock is held.
func (g *Gathering) send() error {
	_, err := g.Conn.Write(g.buffer)
	g.buffer = g.buffer[:0]
	return err
}

func (g *Gathering) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.send()
}

// bytesOver uses a WebSocket as a stream of bytes.
type bytesOver struct {
	net.Conn
	under *Gathering
}

func NewBytesOver(socket *websocket.Conn, under *Gathering) *bytesOver {
	under.mu.Lock()
	defer under.mu.Unlock()
	under.on = true
	return &bytesOver{websocket.NetConn(context.Background(), socket, websocket.MessageBinary), under}
}

// Deadlines are those of the connection under it, which dial and receive have set already: the library's own would leave them as they are.

func (b *bytesOver) SetDeadline(t time.Time) error      { return b.under.SetDeadline(t) }
func (b *bytesOver) SetReadDeadline(t time.Time) error  { return b.under.SetReadDeadline(t) }
func (b *bytesOver) SetWriteDeadline(t time.Time) error { return b.under.SetWriteDeadline(t) }

func (b *bytesOver) Write(text []byte) (int, error) {
	n, err := b.Conn.Write(text)
	if err == nil {
		err = b.under.flush()
	}
	return n, err
}
