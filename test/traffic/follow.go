// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"flag"
	"io"
	"net"
	"sync"
	"time"
)

// report is a line of stream and requests: a gap that ended, or each second how it stands.
type report struct {
	Kind   string `json:"kind"` // gap, or now
	Target string `json:"target"`
	// From is the last answer before a gap, To the first one after it.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Answered is when the last answer came.
	Answered time.Time `json:"answered,omitzero"`
	// Sent, Good and Lost count requests; Broken counts connections of a stream that ended.
	Sent, Good, Lost, Broken int
	Why                      string `json:"why,omitempty"` // of the last failure
}

// gapAfter is how long an answer must stay away to be a gap.
const gapAfter = 150 * time.Millisecond

// ledger keeps what became of the requests to one target.
type ledger struct {
	mu  sync.Mutex
	now report
	out *printer
}

func newLedger(name string, out *printer) *ledger {
	return &ledger{now: report{Kind: "now", Target: name, Answered: time.Now()}, out: out}
}

func (l *ledger) change(what func(*report)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what(&l.now)
}

// good notes an answer and says when it ended a gap.
func (l *ledger) good() {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if at.Sub(l.now.Answered) > gapAfter {
		gap := l.now
		gap.Kind, gap.From, gap.To = "gap", l.now.Answered, at
		_ = l.out.print(gap)
	}
	l.now.Good++
	l.now.Answered = at
}

func (l *ledger) lost(why error) {
	l.change(func(now *report) { now.Lost, now.Why = now.Lost+1, why.Error() })
}

// speak prints how it stands each second until the context ends, and once more then.
func (l *ledger) speak(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		l.change(func(now *report) { _ = l.out.print(*now) })
	}
}

// each runs one client per target.
func each(ctx context.Context, args []string, out *printer, client func(context.Context, target, time.Duration, *ledger)) error {
	flags := flag.NewFlagSet("follow", flag.ContinueOnError)
	every := flags.Duration("every", 50*time.Millisecond, "time between two requests")
	rest, err := parse(flags, args)
	if err != nil {
		return err
	}
	targets, err := parseTargets(rest)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, to := range targets {
		book := newLedger(to.name, out)
		running.Go(func() { client(ctx, to, *every, book) })
		running.Go(func() { book.speak(ctx) })
	}
	running.Wait()
	return nil
}

// stream keeps one connection for each target for as long as the kernel does.
func stream(ctx context.Context, args []string, out *printer) error {
	return each(ctx, args, out, func(ctx context.Context, to target, every time.Duration, book *ledger) {
		for first := true; ctx.Err() == nil; first = false {
			if !first {
				wait(ctx, every)
			}
			dialer := net.Dialer{Timeout: 2 * time.Second, KeepAlive: -1}
			connection, err := dialer.DialContext(ctx, "tcp4", to.address)
			if err != nil {
				if ctx.Err() == nil {
					book.lost(err)
				}
				continue
			}
			if err := converse(ctx, connection, every, book); err != nil && ctx.Err() == nil {
				book.change(func(now *report) { now.Broken, now.Why = now.Broken+1, err.Error() })
			}
		}
	})
}

// converse sends a number each time and reads the same numbers, whenever they come.
func converse(ctx context.Context, connection net.Conn, every time.Duration, book *ledger) error {
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	failed := make(chan error, 1)
	go func() {
		var number [8]byte
		for {
			if _, err := io.ReadFull(connection, number[:]); err != nil {
				failed <- err
				return
			}
			book.good()
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(0); ; n++ {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if _, err := connection.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
		book.change(func(now *report) { now.Sent++ })
	}
}

// requests opens a connection for each request, whatever became of the ones before. A request is lost after a second and a half,
// in which the kernel has tried twice.
func requests(ctx context.Context, args []string, out *printer) error {
	return each(ctx, args, out, func(ctx context.Context, to target, every time.Duration, book *ledger) {
		var running sync.WaitGroup
		defer running.Wait()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			book.change(func(now *report) { now.Sent++ })
			running.Go(func() {
				if err := request(ctx, to.address); err == nil {
					book.good()
				} else if ctx.Err() == nil {
					book.lost(err)
				}
			})
		}
	})
}

func request(ctx context.Context, address string) error {
	deadline := time.Now().Add(1500 * time.Millisecond)
	connection, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	// Twenty connections a second would stay in the tables of every node for minutes.
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	if err := connection.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, make([]byte, len("hello")))
	return err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
