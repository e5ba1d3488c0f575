// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// holding is what a client has that holds connections, once a second. All but Held counts from its start.
type holding struct {
	// Held are the connections that are open now.
	Held int `json:"held"`
	// Opened got as far as TLS, and Ended were ended by the server after that. Failed did not get as far.
	Opened  int    `json:"opened"`
	Ended   int    `json:"ended"`
	Failed  int    `json:"failed"`
	Answers int    `json:"answers"`
	Why     string `json:"why,omitempty"` // of the last failure
}

// holder counts what a client holds.
type holder struct {
	mu  sync.Mutex
	now holding
}

func (h *holder) change(to func(*holding)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	to(&h.now)
}

func (h *holder) seen() holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// hold keeps as many connections as a server lets it have, and opens another one in the place of each that ends. One in eight sends a request now and
// then, the others send a part of one and never the rest. It is a client without credentials that wants the server to have no place for others.
func hold(ctx context.Context, args []string, out *printer) error {
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	connections := flags.Int("connections", 400, "connections that it wants to have at once")
	each := flags.Duration("each", 14*time.Second, "time between two requests on one connection")
	every := flags.Duration("every", 10*time.Millisecond, "least time between two connections that it opens, of all together")
	rest, err := parse(flags, args)
	if err != nil {
		return err
	}
	if len(rest) != 1 || *connections < 1 || *each <= 0 || *every <= 0 {
		return errors.New("want ADDRESS:PORT, and flags above zero")
	}
	var counts holder
	pace := time.NewTicker(*every)
	defer pace.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for n := range *connections {
		asks := n%8 == 0 // an answer may end a connection, and servers limit requests by other means
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				holdOne(ctx, rest[0], asks, *each, &counts)
			}
		})
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		if err := out.print(counts.seen()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
	}
}

// holdOne holds one connection until the server ends it.
func holdOne(ctx context.Context, address string, asks bool, each time.Duration, counts *holder) {
	failed := func(err error) {
		if ctx.Err() == nil {
			counts.change(func(now *holding) { now.Failed, now.Why = now.Failed+1, err.Error() })
		}
	}
	const timeout = 10 * time.Second
	raw, err := (&net.Dialer{Timeout: timeout, KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if err != nil {
		failed(err)
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	// Its port is free again at once, and no node has the connection in its tables for minutes.
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it has ended already
	}
	secure := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // any server is held
	shake, done := context.WithTimeout(ctx, timeout)
	defer done()
	if err := secure.HandshakeContext(shake); err != nil {
		failed(err)
		return
	}
	counts.change(func(now *holding) { now.Opened, now.Held = now.Opened+1, now.Held+1 })
	useHeld(secure, address, asks, each, func() { counts.change(func(now *holding) { now.Answers++ }) })
	counts.change(func(now *holding) {
		if now.Held--; ctx.Err() == nil {
			now.Ended++
		}
	})
}

// begun is a request whose headers do not end.
const begun = "GET /ids HTTP/1.1\r\n"

// useHeld uses a connection as little as it may until the server ends it.
func useHeld(connection net.Conn, address string, asks bool, each time.Duration, answered func()) {
	answers := bufio.NewReaderSize(connection, 512)
	if !asks {
		if _, err := io.WriteString(connection, begun); err == nil {
			_, _ = answers.ReadByte() // until the server ends it
		}
		return
	}
	for {
		if _, err := io.WriteString(connection, begun+"Host: "+address+"\r\n\r\n"); err != nil {
			return
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return
		}
		answered()
		if err := connection.SetReadDeadline(time.Now().Add(each)); err != nil {
			return
		}
		// Neither side sends a byte now: what comes is the end of the connection, or the time of the next request.
		if _, err := answers.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err := connection.SetReadDeadline(time.Time{}); err != nil {
			return
		}
	}
}
