// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"net"
	"sync"
)

// record is more than a record of TLS takes, in bytes: if as much has arrived, a read of what is in it returns at once.
const record = 17 << 10

// Ahead is a TCP connection from which as much is read as has arrived: a system call returns several records of TLS, and it is known whether there are more.
type Ahead struct {
	net.Conn
	mu     sync.Mutex    // closing a WebSocket reads as well
	Reader *bufio.Reader // nil until start
}

// Start begins to read ahead. Before, a connection costs no memory for it: its client may not be authenticated.
func (a *Ahead) Start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Reader = bufio.NewReaderSize(a.Conn, ReadSize)
}

func (a *Ahead) Read(to []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Reader == nil {
		return a.Conn.Read(to)
	}
	return a.Reader.Read(to)
}

// More reports whether a read of what is in TLS returns at once.
func (a *Ahead) More() bool {
	if !a.mu.TryLock() {
		return false // it is being read
	}
	defer a.mu.Unlock()
	return a.Reader != nil && a.Reader.Buffered() >= record
}
