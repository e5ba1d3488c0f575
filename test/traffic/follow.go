// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// report is a line of the commands stream and requests: a gap that ended, or the current counts, once a second.
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

// gapAfter is the shortest time without an answer that counts as a gap.
const gapAfter = 150 * time.Millisecond

// counter counts the requests to one target.
type counter struct {
	mu  sync.Mutex
	now report
	out *printer
}

func newCounter(name string, out *printer) *counter {
	return &counter{now: report{Kind: "now", Target: name, Answered: time.Now()}, out: out}
}

func (c *counter) change(what func(*report)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what(&c.now)
}

// good counts an answer and prints the gap that it ends, if there was one.
func (c *counter) good() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	if at.Sub(c.now.Answered) > gapAfter {
		gap := c.now
		gap.Kind, gap.From, gap.To = "gap", c.now.Answered, at
		_ = c.out.print(gap)
	}
	c.now.Good++
	c.now.Answered = at
}

func (c *counter) lost(why error) {
	c.change(func(now *report) { now.Lost, now.Why = now.Lost+1, why.Error() })
}

// printEverySecond prints the counts each second until the context ends, and once more at the end.
func (c *counter) printEverySecond(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		c.change(func(now *report) { _ = c.out.print(*now) })
	}
}

// forEachTarget runs one client per target.
func forEachTarget(ctx context.Context, args []string, out *printer, client func(context.Context, target, time.Duration, *counter)) error {
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
		counts := newCounter(to.name, out)
		running.Go(func() { client(ctx, to, *every, counts) })
		running.Go(func() { counts.printEverySecond(ctx) })
	}
	running.Wait()
	return nil
}

// stream keeps one connection for each target until the kernel gives it up.
func stream(ctx context.Context, args []string, out *printer) error {
	return follow(ctx, args, out, numberSize)
}

// bulk is stream with large blocks: with 10 ms between them, a download and an upload of 3 MB/s.
func bulk(ctx context.Context, args []string, out *printer) error {
	const block = 32 << 10
	return follow(ctx, args, out, block)
}

const numberSize = 8

func follow(ctx context.Context, args []string, out *printer, size int) error {
	return forEachTarget(ctx, args, out, func(ctx context.Context, to target, every time.Duration, counts *counter) {
		for first := true; ctx.Err() == nil; first = false {
			if !first {
				wait(ctx, every)
			}
			dialer := net.Dialer{Timeout: 2 * time.Second, KeepAlive: -1}
			connection, err := dialer.DialContext(ctx, "tcp4", to.address)
			if err != nil {
				if ctx.Err() == nil {
					counts.lost(err)
				}
				continue
			}
			if err := exchange(ctx, connection, every, size, counts); err != nil && ctx.Err() == nil {
				counts.change(func(now *report) { now.Broken, now.Why = now.Broken+1, err.Error() })
			}
		}
	})
}

// exchange sends blocks of numbers and reads them back, however late they arrive. A number that is not the next one breaks the connection.
func exchange(ctx context.Context, connection net.Conn, every time.Duration, size int, counts *counter) error {
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	failed := make(chan error, 1)
	go func() {
		got := make([]byte, size)
		for n := uint64(0); ; n++ {
			if _, err := io.ReadFull(connection, got); err != nil {
				failed <- err
				return
			}
			if !bytes.Equal(got, blockOf(n, size)) {
				failed <- fmt.Errorf("block %d came back changed", n)
				return
			}
			counts.good()
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
		if _, err := connection.Write(blockOf(n, size)); err != nil {
			return err
		}
		counts.change(func(now *report) { now.Sent++ })
	}
}

// blockOf is a number, repeated.
func blockOf(n uint64, size int) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, n), size/numberSize)
}

// requests opens a connection for each request, also while earlier requests wait. A request is lost after 1.5 s, in which the kernel has
// sent two SYNs.
func requests(ctx context.Context, args []string, out *printer) error {
	return forEachTarget(ctx, args, out, func(ctx context.Context, to target, every time.Duration, counts *counter) {
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
			counts.change(func(now *report) { now.Sent++ })
			running.Go(func() {
				if err := request(ctx, to.address); err == nil {
					counts.good()
				} else if ctx.Err() == nil {
					counts.lost(err)
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
