// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// serving starts a server on the ports from 17000 on.
func serving(t *testing.T) {
	t.Helper()
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"serve", "--port", "17000"}, write)
		write.CloseWithError(err) // which ends a read of the first line
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	serving(t)
	for _, c := range []struct {
		args []string
		from string
		root bool
	}{
		{[]string{"http", "127.0.0.1:17001", "--bytes", "1"}, "127.0.0.1", false},
		{[]string{"http", "127.0.0.1:17001", "--bytes", "10000000"}, "127.0.0.1", false},
		{[]string{"udp", "127.0.0.1:17000", "--bytes", "20000", "--word", "marker"}, "127.0.0.1", false},
		{[]string{"icmp", "127.0.0.1:0", "--bytes", "1"}, "", true},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("a raw socket needs root")
			}
			var out bytes.Buffer
			if err := run(t.Context(), append([]string{"check"}, c.args...), &out); err != nil {
				t.Fatal(err)
			}
			var have result
			if err := json.Unmarshal(out.Bytes(), &have); err != nil || have.From != c.from {
				t.Errorf("%v: %s", err, out.Bytes())
			}
		})
	}
	if err := run(t.Context(), []string{"check", "udp", "127.0.0.1:17009", "--timeout", "300ms"}, io.Discard); err == nil {
		t.Error("a closed port answers")
	}
}

// stalling starts a TCP echo server that stalls while the test holds the lock, and that closes its connections once dropAll is set.
func stalling(t *testing.T) (address string, stall *sync.RWMutex, dropAll *atomic.Bool) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	stall, dropAll = new(sync.RWMutex), new(atomic.Bool)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				buffer := make([]byte, 1024)
				for !dropAll.Load() {
					n, err := connection.Read(buffer)
					if err != nil {
						return
					}
					stall.RLock()
					_, err = connection.Write(buffer[:n])
					stall.RUnlock()
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), stall, dropAll
}

func TestFollowReportsGaps(t *testing.T) {
	for _, command := range []string{"stream", "bulk", "requests"} {
		t.Run(command, func(t *testing.T) {
			address, stall, dropAll := stalling(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			read, write := io.Pipe()
			go func() { write.CloseWithError(run(ctx, []string{command, "--every", "10ms", "here=" + address}, write)) }()
			lines := json.NewDecoder(read)
			next := func(good func(report) bool) report {
				t.Helper()
				for {
					var line report
					if err := lines.Decode(&line); err != nil {
						t.Fatal(err)
					}
					if good(line) {
						return line
					}
				}
			}
			next(func(line report) bool { return line.Kind == "now" && line.Good > 50 })
			stall.Lock()
			var before report
			stalled := next(func(line report) bool { // a second without an answer: two reports with the same count
				if line.Kind != "now" || line.Good != before.Good {
					before = line
					return false
				}
				return true
			})
			stall.Unlock()
			gap := next(func(line report) bool { return line.Kind == "gap" && line.From.Equal(stalled.Answered) })
			if !gap.To.After(gap.From) || gap.Sent < stalled.Sent {
				t.Errorf("after the stall in %+v the gap is %+v", stalled, gap)
			}
			if command == "requests" {
				return
			}
			if gap.Broken != 0 {
				t.Errorf("the connection stalled, but is reported as broken: %+v", gap)
			}
			dropAll.Store(true)
			next(func(line report) bool { return line.Broken > 0 })
		})
	}
}

func TestDatagram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: raw sockets need root")
	}
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	go func() { write.CloseWithError(run(ctx, []string{"capture", "--word", "open sesame"}, write)) }()
	lines := json.NewDecoder(read)
	var first map[string]bool
	if err := lines.Decode(&first); err != nil || !first["listening"] {
		t.Fatal(err, first)
	}
	if err := run(t.Context(), []string{"send", "--link", "lo", "--from", "127.9.8.7", "--to", socket.LocalAddr().
		String(), "--word", "open sesame", "--count", "3"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, from, err := socket.ReadFrom(buffer)
	if err != nil || host(from.String()) != "127.9.8.7" || string(buffer[:n]) != "open sesame" {
		t.Errorf("%v from %v: %q", err, from, buffer[:n])
	}
	cancel()
	for {
		var flow captured
		if err := lines.Decode(&flow); err != nil {
			t.Fatalf("the capture did not see the packets: %v", err)
		}
		if flow.From == "127.9.8.7" && flow.Found >= 3 {
			return
		}
	}
}

// TestHold: as many connections as are wanted are open, some with a request now and then, and others take the place of those that end.
func TestHold(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ids" {
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	go func() {
		write.CloseWithError(run(ctx, []string{"hold", "--connections", "4", "--each", "10ms", "--every", "1ms", server.Listener.Addr().String()}, write))
	}()
	lines := json.NewDecoder(read)
	next := func(good func(holding) bool) holding {
		t.Helper()
		for {
			var line holding
			if err := lines.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if good(line) {
				return line
			}
		}
	}
	before := next(func(line holding) bool { return line.Held == 4 && line.Answers > 4 })
	if before.Opened != 4 || before.Ended != 0 || before.Failed != 0 {
		t.Errorf("while the server ends nothing: %+v", before)
	}
	server.CloseClientConnections()
	after := next(func(line holding) bool { return line.Held == 4 && line.Ended >= 4 })
	if after.Opened != after.Held+after.Ended {
		t.Errorf("after the server has ended all: %+v", after)
	}
	cancel()
	for { // it ends
		var line holding
		if err := lines.Decode(&line); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return
		}
	}
}
