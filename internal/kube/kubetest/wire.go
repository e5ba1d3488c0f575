// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// What a Wire does.
const (
	Pass int32 = iota
	// Swallow takes bytes and connections, and does nothing with them.
	Swallow
	// Refuse closes what is there and what comes.
	Refuse
)

// Wire is a TCP proxy that can be cut.
type Wire struct {
	// Dialled is how many connections came since it was last Set.
	Dialled  atomic.Int32
	listener net.Listener
	mode     atomic.Int32
	mu       sync.Mutex
	open     []net.Conn
}

// NewWire listens on an address of this machine, and leads to another one until the test ends.
func NewWire(t *testing.T, to string) *Wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{listener: listener}
	t.Cleanup(func() {
		_ = listener.Close() // the end of the test
		w.Cut()
	})
	go w.serve(to)
	return w
}

func (w *Wire) serve(to string) {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.Dialled.Add(1)
		if w.mode.Load() == Refuse {
			_ = near.Close() // that is the purpose
			continue
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close() // nobody there
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, near, far)
		w.mu.Unlock()
		go w.copy(near, far)
		go w.copy(far, near)
	}
}

func (w *Wire) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if w.mode.Load() == Swallow {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Address is where it listens.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Set makes it do something else from now on.
func (w *Wire) Set(mode int32) {
	w.Dialled.Store(0)
	w.mode.Store(mode)
	if mode == Refuse {
		w.Cut()
	}
}

// Cut closes all connections, and takes new ones.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, connection := range w.open {
		_ = connection.Close() // it may be closed already
	}
	w.open = nil
}
