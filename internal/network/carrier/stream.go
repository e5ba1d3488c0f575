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
)

const (
	// alive is how often each end shows that it is there, silence after how long the stream is given up.
	alive, silence = 5 * time.Second, 15 * time.Second
	// queueTime is how long a datagram may wait at the observed rate. WireGuard and what it carries expect a network that drops, not one that delays.
	queueTime = 20 * time.Millisecond
	// minQueue and maxQueue bound the queue, in bytes.
	minQueue, maxQueue = 64 << 10, 1 << 20
)

// Info describes a stream.
type Info struct {
	// Kind is TLS or WebSocket, Dialled whether this end opened it, Remote the other end of the outer connection: maybe a proxy.
	Kind    Kind
	Dialled bool
	Remote  string
	Since   time.Time
	// Dropped counts datagrams that found the queue full.
	Dropped uint64
}

// stream carries datagrams to and from one peer.
type stream struct {
	conn    net.Conn
	raw     net.Conn // under it, TCP: closing it interrupts everything
	address netip.AddrPort
	info    Info

	mu     sync.Mutex
	queue  []byte // frames
	limit  int
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once
	cause  error

	dropped atomic.Uint64
	trial   atomic.Pointer[trial]
}

// trial sends copies of all datagrams over UDP, for a time.
type trial struct {
	to    netip.AddrPort
	until time.Time
}

func newStream(conn, raw net.Conn, address netip.AddrPort, info Info) *stream {
	return &stream{conn: conn, raw: raw, address: address, info: info, limit: maxQueue, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

// send queues datagrams. What does not fit is dropped.
func (s *stream) send(datagrams [][]byte) {
	s.mu.Lock()
	for _, one := range datagrams {
		if len(s.queue)+headerSize+len(one) > s.limit || len(one) > maxDatagram {
			s.dropped.Add(1)
			continue
		}
		s.queue = appendFrame(s.queue, one)
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
	rate := 0.0 // bytes per second
	for {
		select {
		case <-s.closed:
			return
		case <-s.wake:
		case <-timer.C:
			spare = appendFrame(spare[:0], nil)
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
			_ = s.conn.SetWriteDeadline(start.Add(silence))
			if _, err := s.conn.Write(spare); err != nil {
				s.close(gone(err))
				return
			}
			took := max(time.Since(start), time.Microsecond).Seconds()
			if now := float64(len(spare)) / took; rate == 0 {
				rate = now
			} else {
				const weight = 8
				rate += (now - rate) / weight
			}
			spare = spare[:0]
			s.mu.Lock()
			s.limit = min(max(int(rate*queueTime.Seconds()), minQueue), maxQueue)
			s.mu.Unlock()
		}
		timer.Reset(alive)
	}
}

// read delivers what arrives, until the stream ends.
func (s *stream) read(deliver func(from netip.AddrPort, datagrams [][]byte)) {
	from := &frames{from: s.conn}
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(silence))
		datagrams, err := from.next()
		if err != nil {
			s.close(gone(err))
			return
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
	if t == nil {
		return netip.AddrPort{}, false
	}
	if time.Now().After(t.until) {
		s.trial.CompareAndSwap(t, nil)
		return netip.AddrPort{}, false
	}
	return t.to, true
}
