// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/offloading/names"
)

// Port is where the pods of the role listen: NetworkPolicies of remote namespaces admit it for name servers (53, 5353), and it needs no privilege.
const Port = 5353

// Service is the name of the Service in front of them.
const Service = "liqo-dns"

// Limits bound what callers use. Zero values mean the defaults.
type Limits struct {
	// All is the number of questions that are being answered, Each that of one address. Held is that of questions whose caller is not known yet, and HeldEach
	// that of one address among them.
	All, Each, Held, HeldEach int
	// PerSecond and Burst are questions of one address.
	PerSecond, Burst int
	// Connections is the number of TCP connections, ConnectionsEach that of one address.
	Connections, ConnectionsEach int
	// Hold is how long a question waits until its caller is known, Idle how long a TCP connection waits for the next one.
	Hold, Idle time.Duration
}

func (l *Limits) complete() {
	for _, entry := range []struct {
		value     *int
		otherwise int
	}{{&l.All, 2048}, {&l.Each, 256}, {&l.Held, 256}, {&l.HeldEach, 32}, {&l.PerSecond, 2000}, {&l.Burst, 4000}, {&l.Connections, 256}, {&l.ConnectionsEach, 32}} {
		if *entry.value == 0 {
			*entry.value = entry.otherwise
		}
	}
	if l.Hold == 0 {
		l.Hold = 4 * time.Second
	}
	if l.Idle == 0 {
		l.Idle = 10 * time.Second
	}
}

const (
	// maxQuery is the most bytes of a question.
	maxQuery = 4096
	// maxTime is how long an answer may take, aliases included. Resolvers have asked again by then.
	maxTime = 10 * time.Second
	// remembered is the number of addresses whose rates are known.
	remembered = 20_000
)

// Options of a Server.
type Options struct {
	Callers *Callers
	// Upstreams are the name servers of this cluster.
	Upstreams []netip.AddrPort
	Limits    Limits
	Log       logr.Logger
}

// Server answers the pods of peers.
type Server struct {
	options  Options
	upstream *upstream
	rates    *ratelimit.Limiter[netip.Addr]
	places   *listener.Places
	logged   rate.Sometimes
	meters   *meters

	mu         sync.Mutex
	busy, held int
	from       map[netip.Addr]int
	heldFrom   map[netip.Addr]int
	done       sync.WaitGroup
}

// New returns a server.
func New(o Options) (*Server, error) {
	if len(o.Upstreams) == 0 {
		return nil, errors.New("the DNS of this cluster has no address: /etc/resolv.conf names no server")
	}
	o.Limits.complete()
	return &Server{
		options: o, upstream: newUpstream(o.Upstreams), from: map[netip.Addr]int{}, heldFrom: map[netip.Addr]int{}, logged: rate.Sometimes{Interval: time.Second},
		rates:  ratelimit.New[netip.Addr](rate.Limit(o.Limits.PerSecond), o.Limits.Burst, remembered),
		meters: measured(),
		places: listener.NewPlaces(listener.Limits{All: o.Limits.Connections, Each: o.Limits.ConnectionsEach}),
	}, nil
}

// Serve answers until ctx ends. It closes both sockets, and waits for what is being answered.
func (s *Server) Serve(ctx context.Context, datagrams *net.UDPConn, connections net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.done.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = datagrams.Close()
		_ = connections.Close()
	})
	defer stop()
	ended := make(chan error, 2)
	s.done.Go(func() { ended <- s.serveDatagrams(ctx, datagrams) })
	s.done.Go(func() { ended <- s.serveConnections(ctx, connections) })
	err := <-ended
	cancel()
	return errors.Join(err, <-ended)
}

// enter counts a question of an address; false if it has too many.
func (s *Server) enter(from netip.Addr) bool {
	if !s.rates.Allow(from, time.Now()) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy >= s.options.Limits.All || s.from[from] >= s.options.Limits.Each {
		return false
	}
	s.busy++
	s.from[from]++
	return true
}

func (s *Server) leave(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.from[from]--; s.from[from] == 0 {
		delete(s.from, from)
	}
}

// hold counts a question that waits for its caller to be known; false if there are too many.
func (s *Server) hold(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= s.options.Limits.Held || s.heldFrom[from] >= s.options.Limits.HeldEach {
		return false
	}
	s.held++
	s.heldFrom[from]++
	return true
}

func (s *Server) release(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	if s.heldFrom[from]--; s.heldFrom[from] == 0 {
		delete(s.heldFrom, from)
	}
}

// serveDatagrams answers what comes over UDP. What is too much is dropped: its sender may be another than it claims.
func (s *Server) serveDatagrams(ctx context.Context, at *net.UDPConn) error {
	buffer := make([]byte, maxQuery+1)
	for {
		n, from, err := at.ReadFromUDPAddrPort(buffer)
		switch caller := from.Addr().Unmap(); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("socket of the name server: %w", err)
		case err != nil: // an error of one packet is none of the socket
		case n > maxQuery, !s.enter(caller):
			s.meters.dropped("udp")
		default:
			packet := append([]byte(nil), buffer[:n]...)
			s.done.Go(func() {
				defer s.leave(caller)
				if answer := s.answer(ctx, packet, caller, "udp"); answer != nil {
					_, _ = at.WriteToUDPAddrPort(answer, from) // the client asks again
				}
			})
		}
	}
}

// serveConnections answers what comes over TCP.
func (s *Server) serveConnections(ctx context.Context, at net.Listener) error {
	return listener.Each(ctx, at, s.options.Log, func(connection net.Conn) {
		place := s.places.Enter(connection)
		s.done.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
			s.serveConnection(ctx, connection)
			stop()
			_ = connection.Close()
			place.Leave()
		})
	})
}

// serveConnection answers one question after the other.
func (s *Server) serveConnection(ctx context.Context, connection net.Conn) {
	address, err := netip.ParseAddrPort(connection.RemoteAddr().String())
	if err != nil {
		return
	}
	caller := address.Addr().Unmap()
	for {
		if connection.SetDeadline(time.Now().Add(s.options.Limits.Idle)) != nil {
			return
		}
		packet, err := readFrame(connection, maxQuery)
		if err != nil {
			return
		}
		if !s.enter(caller) {
			s.meters.dropped("tcp")
			return
		}
		answer := s.answer(ctx, packet, caller, "tcp")
		s.leave(caller)
		if answer == nil || connection.SetDeadline(time.Now().Add(s.options.Limits.Idle)) != nil || writeFrame(connection, answer) != nil {
			return
		}
	}
}

// answer returns the answer to a packet; nil for none.
func (s *Server) answer(ctx context.Context, packet []byte, from netip.Addr, network string) []byte {
	began := time.Now()
	answer, what := s.decide(ctx, packet, from, network)
	s.meters.count(network, what, began)
	return answer
}

func (s *Server) decide(ctx context.Context, packet []byte, from netip.Addr, network string) ([]byte, outcome) {
	q, err := names.Parse(packet)
	if err != nil {
		return nil, malformed
	}
	if q.Refused != dnsmessage.RCodeSuccess {
		return q.Error(q.Refused), malformed
	}
	asks := s.callerOf(ctx, from, q)
	if asks.view == nil {
		s.logged.Do(func() { s.options.Log.Info("question refused: no pod of a peer has the address", "address", from) })
		return q.Error(dnsmessage.RCodeRefused), refused
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	answer, what, err := s.resolve(ctx, asks, q, network)
	if err != nil {
		s.logged.Do(func() { s.options.Log.Info("question not answered", "reason", err.Error()) })
		return q.Error(dnsmessage.RCodeServerFailure), failed
	}
	return answer, what
}

// callerOf returns what names mean for who asks; without a view if it is no pod of a peer.
func (s *Server) callerOf(ctx context.Context, from netip.Addr, q *names.Query) caller {
	found, any, _ := s.options.Callers.find(from, q)
	switch {
	case found.view != nil:
		return found
	case any != nil:
		return caller{view: any}
	case !s.hold(from):
		return caller{}
	}
	defer s.release(from)
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Hold)
	defer cancel()
	return s.options.Callers.wait(ctx, from, q)
}

// resolve answers, or asks the DNS of this cluster for what a question means.
func (s *Server) resolve(ctx context.Context, asks caller, q *names.Query, network string) ([]byte, outcome, error) {
	most := maxBytes(q, network)
	if answer := asks.server.Answer(asks.view, q, most); answer != nil {
		return answer, own, nil
	}
	kind, name := asks.view.Look(q.Name())
	if !q.Internet() {
		kind = names.Pass
	}
	switch kind {
	case names.Absent:
		return asks.view.Negative(q), absent, nil
	case names.Pass, names.Reverse:
		answer, err := s.upstream.ask(ctx, network, q.Packet, question{q.Name(), q.Question})
		if err != nil {
			return nil, "", err
		}
		names.SetID(answer, q.Header.ID)
		if kind == names.Reverse {
			answer, err = asks.view.Reverse(q, answer, most)
			return answer, translated, err
		}
		return answer, passed, nil
	case names.Mapped:
	}
	answer, err := s.follow(ctx, asks.view, q, name, network)
	return answer, translated, err
}

// maxBytes is how large an answer may be; 0 for any size.
func maxBytes(q *names.Query, network string) int {
	if network == "udp" {
		return q.Size()
	}
	return 0
}

// follow asks for a name, and for those that its aliases lead to.
func (s *Server) follow(ctx context.Context, view *names.View, q *names.Query, name, network string) ([]byte, error) {
	most, chain := maxBytes(q, network), view.NewChain(q)
	for kind := names.Mapped; kind == names.Mapped; {
		next, err := s.step(ctx, chain, q, name, network)
		if err != nil {
			return nil, err
		}
		if next == "" {
			return chain.Pack(most), nil
		}
		kind, name = view.Look(next)
	}
	chain.End()
	return chain.Pack(most), nil
}

// step asks for one name of a chain of aliases, and returns the consumer's name that is next.
func (s *Server) step(ctx context.Context, chain *names.Chain, q *names.Query, name, network string) (next string, _ error) {
	answer, err := s.askFor(ctx, q, name, q.Question.Type, network)
	if err != nil {
		return "", err
	}
	next, err = chain.Add(name, answer)
	if err != nil || next != "" || !chain.HidesAlias() {
		return next, err
	}
	if answer, err = s.askFor(ctx, q, name, dnsmessage.TypeCNAME, network); err != nil {
		return "", err
	}
	return chain.AddAlias(name, answer)
}

func (s *Server) askFor(ctx context.Context, q *names.Query, name string, of dnsmessage.Type, network string) ([]byte, error) {
	packet, err := q.For(name, of)
	if err != nil {
		return nil, err
	}
	asked := q.Question
	asked.Type = of
	return s.upstream.ask(ctx, network, packet, question{name, asked})
}
