// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"liqo.io/liqo/playground/demo/command"
	"liqo.io/liqo/playground/demo/server"
)

const (
	maxBytes = 1 << 30     // largest answer of /api/bytes
	maxEcho  = 64 << 10    // most of a request body that /api/echo returns
	maxUDP   = 64 << 10    // largest datagram
	stallMax = time.Minute // how long a reader of /api/bytes may stand still
)

// info identifies the pod that answered: the answer of /api/info.
type info struct {
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	IP        string `json:"ip"`
	// Requests counts what this process answered, without health checks.
	Requests uint64 `json:"requests"`
	// Client is the address the request came from, as this process sees it: after
	// every translation on the way.
	Client string `json:"client"`
}

// echo is a request as it arrived: the answer of /api/echo.
type echo struct {
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Proto   string      `json:"proto"`
	Host    string      `json:"host"`
	Client  string      `json:"client"`
	Headers http.Header `json:"headers"`
	Body    string      `json:"body"` // its first 64 KiB
}

// web is the state of one demo serve.
type web struct {
	env      command.Environment
	requests atomic.Uint64
	draining atomic.Bool
	backends backends
}

func serve(ctx context.Context, c command.Call) error {
	at := server.Listener{CertificateOut: c.Stdout}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	at.Register(flags, ":8080")
	udp := flags.String("udp", "", "UDP `address` to echo datagrams on, e.g. :8081; empty: none")
	if err := command.NoArguments(c.Parse(flags)); err != nil {
		return err
	}
	if *udp != "" {
		socket, err := new(net.ListenConfig).ListenPacket(ctx, "udp", *udp)
		if err != nil {
			return fmt.Errorf("echo UDP on %s: %w", *udp, err)
		}
		defer socket.Close()
		go func() {
			if err := echoUDP(socket); err != nil {
				fmt.Fprintln(c.Stderr, "demo serve:", err)
			}
		}()
	}
	w := newWeb(c.Env)
	return at.Run(ctx, w.handler(), func() { w.draining.Store(true) })
}

func newWeb(env command.Environment) *web {
	return &web{env: env, backends: newBackends(env.Backends)}
}

func (s *web) handler() http.Handler {
	counted := http.NewServeMux()
	counted.HandleFunc("GET /{$}", s.page)
	counted.HandleFunc("GET /api/info", s.info)
	counted.HandleFunc("GET /api/backends", s.askBackends)
	counted.HandleFunc("/api/echo", s.echo)
	counted.HandleFunc("GET /api/slow", s.slow)
	counted.HandleFunc("GET /api/bytes", s.bytes)

	all := http.NewServeMux()
	all.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	all.HandleFunc("GET /readyz", s.ready)
	all.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		counted.ServeHTTP(w, r)
	})
	return all
}

func (s *web) ready(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		answer(w, http.StatusServiceUnavailable, "draining: SIGTERM received")
		return
	}
	answer(w, http.StatusOK, "ok")
}

// answer writes one line of text; a client that is gone does not read it.
func answer(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, line)
}

func (s *web) responder(r *http.Request) info {
	return info{
		Pod: s.env.Pod, Node: s.env.Node, Namespace: s.env.Namespace, Cluster: s.env.Cluster, IP: s.env.IP,
		Requests: s.requests.Load(), Client: r.RemoteAddr,
	}
}

// info answers with the identity of this pod. With ?fresh it closes the connection after it, so that
// the same client reaches another pod of the service next time.
func (s *web) info(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("fresh") {
		w.Header().Set("Connection", "close")
	}
	server.WriteJSON(w, http.StatusOK, s.responder(r))
}

func (s *web) askBackends(w http.ResponseWriter, r *http.Request) {
	server.WriteJSON(w, http.StatusOK, s.backends.ask(r.Context()))
}

func (s *web) echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxEcho))
	if err != nil {
		answer(w, http.StatusBadRequest, fmt.Sprintf("read request body: %v", err))
		return
	}
	server.WriteJSON(w, http.StatusOK, echo{
		Method: r.Method, URL: r.URL.String(), Proto: r.Proto, Host: r.Host,
		Client: r.RemoteAddr, Headers: r.Header, Body: string(body),
	})
}

func (s *web) slow(w http.ResponseWriter, r *http.Request) {
	ms, err := number(r, "ms", 1000, int64(server.MaxSlow/time.Millisecond))
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		server.WriteJSON(w, http.StatusOK, s.responder(r))
	case <-r.Context().Done(): // the client is gone
	}
}

// bytes answers with n bytes that no link can compress away and every reader can
// check: the byte at position i is i*7 modulo 251.
func (s *web) bytes(w http.ResponseWriter, r *http.Request) {
	n, err := number(r, "n", 1024, maxBytes)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	const period = 251
	chunk := make([]byte, 261*period) // about 64 KiB, and whole periods
	for i := range chunk {
		chunk[i] = byte(i * 7 % period)
	}
	control := http.NewResponseController(w)
	for n > 0 {
		// The server's write timeout is for whole answers; this one may take long as
		// long as it moves. Without support for deadlines that timeout stays.
		if err := control.SetWriteDeadline(time.Now().Add(stallMax)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		written, err := w.Write(chunk[:min(n, int64(len(chunk)))])
		if err != nil {
			return // the client is gone
		}
		n -= int64(written)
	}
}

// number reads a query parameter between 0 and most.
func number(r *http.Request, name string, otherwise, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("parameter %s is %q; want a whole number from 0 to %d", name, text, most)
	}
	return n, nil
}

// echoUDP sends every datagram back to its sender until the socket is closed.
func echoUDP(socket net.PacketConn) error {
	buffer := make([]byte, maxUDP)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("echo UDP: %w", err)
		}
		// A datagram may be lost, on this machine as on the way.
		socket.WriteTo(buffer[:n], from) //nolint:errcheck // see above
	}
}
