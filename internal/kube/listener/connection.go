// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// connection is one that has a place. While its client sends headers, it counts them.
type connection struct {
	net.Conn
	place *Place
	// requests is how many have arrived.
	requests atomic.Int32
	// counting is true from the end of a request until the headers of the next have arrived.
	counting atomic.Bool

	// What follows is used by the goroutine that reads, and while counting is false by the one that starts the next request.
	most, mostLines int
	bytes, lines    int
	// empty: the line has no character so far.
	empty bool
}

func newConnection(inner net.Conn, place *Place, l Limits) *connection {
	c := &connection{Conn: inner, place: place, most: l.Header, mostLines: lines}
	c.next()
	return c
}

// trust lets a client send the headers of those who have proven who they are, with as many lines as they like.
func (c *connection) trust(l Limits) { c.most, c.mostLines = l.HeaderKept, l.HeaderKept }

// next counts the headers of another request.
func (c *connection) next() {
	c.place.release()
	c.bytes, c.lines, c.empty = 0, 0, true
	c.counting.Store(true)
}

// tooLarge is the answer to headers that are too large. The client may not see it, since it is still sending.
const tooLarge = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n431 " +
	"Request Header Fields Too Large"

func (c *connection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if n == 0 || !c.counting.Load() {
		return n, err
	}
	bytes, ended := c.count(to[:n])
	if c.bytes > c.most || c.lines > c.mostLines {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c.Conn, tooLarge)
		return 0, io.EOF
	}
	if !c.place.hold(bytes) {
		return 0, net.ErrClosed
	}
	if ended {
		c.counting.Store(false)
	}
	return n, err
}

// count adds what has arrived, and reports how many bytes belong to headers and whether they end there, with an empty line.
func (c *connection) count(text []byte) (bytes int, ended bool) {
	for i, character := range text {
		c.bytes++
		switch {
		case character == '\n' && c.empty && c.lines > 0:
			return i + 1, true
		case character == '\n':
			c.lines++
			c.empty = true
		case character != '\r':
			c.empty = false
		}
	}
	return len(text), false
}

func (c *connection) Close() error {
	defer c.place.Leave()
	return c.Conn.Close()
}

// CloseWrite ends what the client receives.
func (c *connection) CloseWrite() error {
	if inner, can := c.Conn.(interface{ CloseWrite() error }); can {
		return inner.CloseWrite()
	}
	return nil
}
