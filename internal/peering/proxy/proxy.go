// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/listener"
)

// Limits bound what clients use. Zero values mean the defaults.
type Limits struct {
	// Peer is the number of connections of one peer, Total that of all peers.
	Peer, Total int
	// Waiting is the number of connections that have not sent their request. If there are more, the oldest of the address with the most ends: an honest
	// client sends its request with the last packet of the handshake, so however many a hostile one opens, it waits for none of them.
	Waiting int
	// Request is how long a client may take to send its request, Dial how long the destination may take to accept the connection, and Handshake how long
	// both may then take until each has sent something.
	Request, Dial, Handshake time.Duration
	// Idle is how long a connection may carry nothing. It is as long as that of kubelets, because an exec without a key stroke carries nothing.
	Idle time.Duration
	// Write is how long one end may take to accept what the other has sent.
	Write time.Duration
}

func (l *Limits) complete() {
	for _, limit := range []struct {
		value *int
		most  int
	}{{&l.Peer, 256}, {&l.Total, 2048}, {&l.Waiting, 512}} {
		if *limit.value == 0 {
			*limit.value = limit.most
		}
	}
	for _, limit := range []struct {
		value *time.Duration
		most  time.Duration
	}{
		{&l.Request, 5 * time.Second},
		{&l.Dial, 5 * time.Second},
		{&l.Handshake, 10 * time.Second},
		{&l.Idle, 4 * time.Hour},
		{&l.Write, time.Minute},
	} {
		if *limit.value == 0 {
			*limit.value = limit.most
		}
	}
}

// Upstream is one destination.
type Upstream struct {
	// Address is HOST:PORT.
	Address string
	// TLS, if it is not nil, ends the TLS of the client here: the destination speaks plain HTTP, behind an ingress that ends TLS for others.
	TLS *tls.Config
	// Share, if it is not nil, bounds what each peer uses of the destination.
	Share *Share
}

// Options configure a proxy.
type Options struct {
	// Upstreams are the destinations, by the exact text that clients ask for: HOST:PORT.
	Upstreams map[string]Upstream
	// Key is the secret from which the passes of peers are derived.
	Key    []byte
	Limits Limits
	Log    logr.Logger
}

// Proxy serves peers.
type Proxy struct {
	options Options
	// logged and failed bound the lines of the log: those of refused clients, and those of destinations that do not answer.
	logged, failed throttle
	// shared are the connections to each destination.
	shared map[string]*sharing

	mu sync.Mutex
	// waiting are places for the connections without a request.
	waiting *listener.Places
	// all are the open connections, and peers how many of them each peer has.
	all   map[net.Conn]bool
	peers map[string]int
	busy  int
	done  sync.WaitGroup
}

// New returns a proxy. It fails if no peer could have a pass.
func New(o Options) (*Proxy, error) {
	if _, err := Pass(o.Key, "any"); err != nil {
		return nil, err
	}
	o.Limits.complete()
	p := &Proxy{
		options: o, shared: map[string]*sharing{}, waiting: listener.NewPlaces(listener.Limits{All: o.Limits.Waiting}), all: map[net.Conn]bool{},
		peers: map[string]int{},
	}
	for to, upstream := range o.Upstreams {
		p.shared[to] = newSharing(upstream.Share)
	}
	return p, nil
}

// Serve accepts connections until ctx ends. Then it closes all of them, and waits until they are closed.
func (p *Proxy) Serve(ctx context.Context, at net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = at.Close() })
	defer stop()
	defer p.end()
	return listener.Each(ctx, at, p.options.Log, func(connection net.Conn) {
		place := p.admit(connection)
		p.done.Go(func() { p.serve(ctx, connection, place) })
	})
}

// end closes all connections and waits for them.
func (p *Proxy) end() {
	p.mu.Lock()
	for connection := range p.all {
		_ = connection.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// admit adds a connection to those that wait, and ends another one of the address with the most if there are too many.
func (p *Proxy) admit(connection net.Conn) *listener.Place {
	p.mu.Lock()
	p.all[connection] = true
	p.mu.Unlock()
	return p.waiting.Enter(connection)
}

// serve answers the request of one connection.
func (p *Proxy) serve(ctx context.Context, connection net.Conn, place *listener.Place) {
	defer func() {
		_ = connection.Close()
		place.Leave()
		p.mu.Lock()
		delete(p.all, connection)
		p.mu.Unlock()
	}()
	_ = connection.SetDeadline(time.Now().Add(p.options.Limits.Request))
	request, refused := readConnect(connection, p.options.Key, func(to string) bool { _, known := p.options.Upstreams[to]; return known })
	if refused == nil {
		refused = p.enter(request.peer, place)
	}
	if refused != nil {
		p.refuse(connection, request.peer, refused)
		return
	}
	defer p.leave(request.peer)
	leave, ok := p.shared[request.to].enter(request.peer, connection, time.Now())
	if !ok {
		p.refuse(connection, request.peer, errTooOften)
		return
	}
	defer leave()
	p.connect(ctx, connection, request)
}

// enter counts a connection of a peer. It does not wait any more.
func (p *Proxy) enter(peer string, place *listener.Place) *refusal {
	place.Leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.peers[peer] >= p.options.Limits.Peer:
		return errTooMany
	case p.busy >= p.options.Limits.Total:
		return errFull
	}
	p.busy++
	p.peers[peer]++
	return nil
}

func (p *Proxy) leave(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if p.peers[peer]--; p.peers[peer] == 0 {
		delete(p.peers, peer)
	}
}

// refuseDeadline is how long a client may take to accept a refusal.
const refuseDeadline = time.Second

// refuse answers a client that gets no connection.
func (p *Proxy) refuse(connection net.Conn, peer string, refused *refusal) {
	if p.logged.allow(time.Now()) {
		p.options.Log.Info("connection refused", "peer", peer, "remote", connection.RemoteAddr().String(), "code", refused.code, "reason", refused.text)
	}
	_ = connection.SetWriteDeadline(time.Now().Add(refuseDeadline))
	_, _ = connection.Write([]byte(refused.answer())) // the client may be gone
}

// throttle keeps a client that floods the proxy from filling the disk with log lines.
type throttle struct{ next atomic.Int64 }

func (t *throttle) allow(now time.Time) bool {
	next := t.next.Load()
	return now.UnixNano() >= next && t.next.CompareAndSwap(next, now.Add(time.Second).UnixNano())
}
