// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// What a Proxy does.
const (
	Pass int32 = iota
	// Swallow takes bytes and connections, and does nothing with them.
	Swallow
	// Refuse closes what is there and what comes.
	Refuse
)

// Proxy is a TCP proxy that can be cut.
type Proxy struct {
	// Dialled is how many connections came since it was last Set.
	Dialled  atomic.Int32
	listener net.Listener
	mode     atomic.Int32
	mu       sync.Mutex
	open     []net.Conn
}

// NewProxy listens on an address of this machine, and leads to another one until the test ends.
func NewProxy(t *testing.T, to string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener}
	t.Cleanup(func() {
		_ = listener.Close() // the end of the test
		p.Cut()
	})
	go p.serve(to)
	return p
}

func (p *Proxy) serve(to string) {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.Dialled.Add(1)
		if p.mode.Load() == Refuse {
			_ = near.Close() // that is the purpose
			continue
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close() // nobody there
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, near, far)
		p.mu.Unlock()
		go p.copy(near, far)
		go p.copy(far, near)
	}
}

func (p *Proxy) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.mode.Load() == Swallow {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set makes it do something else from now on.
func (p *Proxy) Set(mode int32) {
	p.Dialled.Store(0)
	p.mode.Store(mode)
	if mode == Refuse {
		p.Cut()
	}
}

// Cut closes all connections, and takes new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, connection := range p.open {
		_ = connection.Close() // it may be closed already
	}
	p.open = nil
}
