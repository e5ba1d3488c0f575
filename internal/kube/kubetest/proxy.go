// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// The modes of a Proxy.
const (
	// Pass forwards bytes.
	Pass int32 = iota
	// Swallow accepts connections and bytes, and forwards nothing.
	Swallow
	// Refuse closes all existing and new connections.
	Refuse
)

// OwnAddress returns a loopback address with port 0 that no other process uses, for a server that starts after its port has been chosen, or stops and starts
// again: at 127.0.0.1, another process, or an outgoing connection, could take the port in between.
func OwnAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(254), rand.N(256), 1+rand.N(254))
}

// Proxy is a TCP proxy that can interrupt its connections.
type Proxy struct {
	// Dialled counts the connections since the last call of Set.
	Dialled  atomic.Int32
	listener net.Listener
	mode     atomic.Int32
	mu       sync.Mutex
	open     []net.Conn
}

// NewProxy starts a proxy on a loopback address that forwards to the given address until the test ends.
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
			_ = near.Close() // the purpose of Refuse
			continue
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close() // no server at the address
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

// Address returns the address on which the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set changes the mode and resets Dialled.
func (p *Proxy) Set(mode int32) {
	p.Dialled.Store(0)
	p.mode.Store(mode)
	if mode == Refuse {
		p.Cut()
	}
}

// Cut closes all connections. New ones are handled in the current mode.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, connection := range p.open {
		_ = connection.Close() // it may be closed already
	}
	p.open = nil
}
