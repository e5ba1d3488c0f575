// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bufio"
	"net"
	"sync"
)

// record is more than a record of TLS takes, in bytes: if as much has arrived, a read of what is in it returns at once.
const record = 17 << 10

// ahead is a TCP connection from which as much is read as has arrived: a system call returns several records of TLS, and it is known whether there are more.
type ahead struct {
	net.Conn
	mu     sync.Mutex    // closing a WebSocket reads as well
	reader *bufio.Reader // nil until start
}

// start begins to read ahead. Before, a connection costs no memory for it: its client may not be authenticated.
func (a *ahead) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reader = bufio.NewReaderSize(a.Conn, readSize)
}

func (a *ahead) Read(to []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reader == nil {
		return a.Conn.Read(to)
	}
	return a.reader.Read(to)
}

// more reports whether a read of what is in TLS returns at once.
func (a *ahead) more() bool {
	if !a.mu.TryLock() {
		return false // it is being read
	}
	defer a.mu.Unlock()
	return a.reader != nil && a.reader.Buffered() >= record
}
