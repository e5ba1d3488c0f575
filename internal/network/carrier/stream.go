// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/plan/carriers"
)

const (
	// alive is how often each end shows that it is there.
	alive = time.Second
	// queueTime is how long a datagram may wait. WireGuard and what it carries expect a network that drops, not one that delays.
	queueTime = 20 * time.Millisecond
	// minQueue and maxQueue bound the queue, firstQueue is its size before a rate was observed, in bytes.
	minQueue, firstQueue, maxQueue = 32 << 10, 256 << 10, 1 << 20
	// chunk is how much is written within silence, or the stream has failed: slower streams than that are of no use.
	chunk = 32 << 10
)

type Info struct {
	// Kind is TLS or WebSocket, Dialled whether this end opened it, Remote the other end of the outer connection: maybe a proxy.
	Kind    transport.Kind
	Dialled bool
	Remote  string
	Since   time.Time
}

func (i Info) opened() carriers.Stream { return carriers.Stream{Dialled: i.Dialled, Since: i.Since} }

// Totals count what streams have carried: bytes of datagrams, datagrams that found the queue full, and datagrams that no stream or device takes,
// because they are larger than every one that it may get.
type Totals struct{ Sent, Received, Dropped, Oversized atomic.Uint64 }

// stream carries datagrams to and from one peer.
type stream struct {
	conn    net.Conn
	raw     net.Conn    // under it, TCP: closing it interrupts everything
	more    func() bool // of frames; nil without TCP
	address netip.AddrPort
	info    Info

	mu     sync.Mutex
	queue  []byte // frames
	limit  int
	full   bool // something was dropped since the last write
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once
	cause  error

	totals *Totals
	trial  atomic.Pointer[trial]
}

// trial sends copies of all datagrams over UDP, for a time.
type trial struct {
	to     netip.AddrPort
	until  time.Time
	passed atomic.Bool
}

func newStream(conn, raw net.Conn, address netip.AddrPort, info Info, totals *Totals) *stream {
	s := &stream{conn: conn, raw: raw, address: address, info: info, totals: totals, limit: firstQueue, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	if tcp, ok := raw.(*transport.Ahead); ok {
		tcp.Start()
		s.more = tcp.More
	}
	return s
}

// send queues datagrams. What does not fit is dropped, and what is no datagram for any carrier as well.
func (s *stream) send(datagrams [][]byte) {
	s.mu.Lock()
	for _, one := range datagrams {
		if len(one) > transport.MaxDatagram {
			s.totals.Oversized.Add(1)
			continue // the queue is not full
		}
		if len(s.queue)+transport.HeaderSize+len(one) > s.limit {
			s.totals.Dropped.Add(1)
			s.full = true
			continue
		}
		s.queue = transport.AppendFrame(s.queue, one)
		s.totals.Sent.Add(uint64(len(one)))
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued, until the stream ends.
func (s *stream) write() {
	spare := make([]byte, 0, minQueue)
	timer := time.NewTimer(alive)
	defer timer.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-s.wake:
		case <-timer.C:
			spare = transport.AppendFrame(spare[:0], nil)
		}
		for {
			s.mu.Lock()
			if len(spare) == 0 {
				spare, s.queue = s.queue, spare
			}
			s.mu.Unlock()
			if len(spare) == 0 {
				break
			}
			start := time.Now()
			if err := s.writeAll(spare); err != nil {
				s.close(gone(err))
				return
			}
			s.mu.Lock()
			s.limit, s.full = nextLimit(s.limit, len(spare), time.Since(start), s.full), false
			s.mu.Unlock()
			spare = spare[:0]
		}
		timer.Reset(alive)
	}
}

// writeAll writes in chunks, each of which has its own deadline.
func (s *stream) writeAll(text []byte) error {
	for len(text) > 0 {
		n := min(len(text), chunk)
		_ = s.conn.SetWriteDeadline(time.Now().Add(transport.Silence))
		if _, err := s.conn.Write(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// nextLimit is the limit of the queue after a write of size bytes, which took a time. full: something was dropped meanwhile. A write that takes longer than
// queueTime has filled what is below, so it shows the rate. One that is fast shows nothing, because the kernel may have copied it only.
func nextLimit(limit, size int, took time.Duration, full bool) int {
	switch {
	case took > queueTime:
		return min(max(int(float64(size)*queueTime.Seconds()/took.Seconds()), minQueue), limit)
	case full && took < queueTime/2:
		return min(2*limit, maxQueue)
	}
	return limit
}

// read delivers what arrives, until the stream ends.
func (s *stream) read(deliver func(from netip.AddrPort, datagrams [][]byte)) {
	from := &transport.Frames{From: s.conn, More: s.more}
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(transport.Silence))
		datagrams, err := from.Next()
		if err != nil {
			s.close(gone(err))
			return
		}
		for _, one := range datagrams {
			s.totals.Received.Add(uint64(len(one)))
		}
		if len(datagrams) > 0 {
			deliver(s.address, datagrams)
		}
	}
}

func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return err
}

// close ends the stream. The first cause stays.
func (s *stream) close(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.closed)
		_ = s.raw.Close() // it may have ended already
		_ = s.conn.Close()
	})
}

// trialTo is the UDP address to which copies go at this time.
func (s *stream) trialTo() (netip.AddrPort, bool) {
	t := s.trial.Load()
	if t == nil || time.Now().After(t.until) {
		return netip.AddrPort{}, false
	}
	return t.to, true
}
