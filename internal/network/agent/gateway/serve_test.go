// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/report"
)

// bare is a host without anything.
type bare struct{ Host }

func (bare) Implementation() string             { return "kernel" }
func (bare) Tunnel() ([]host.TunnelPeer, error) { return nil, nil }

func newBare() *Gateway {
	return &Gateway{o: Options{Log: logr.Discard()}, host: bare{}, prober: probe.New(probe.Options{}), peers: map[string]*peer{}, news: make(chan struct{})}
}

// ask sends a request from an address of the loopback.
func ask(t *testing.T, server *httptest.Server, from, path string, body io.Reader) *http.Response {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); response.Body.Close(); transport.CloseIdleConnections() })
	return response
}

// A pod that opens as many reports as it can does not keep others out.
func TestReaders(t *testing.T) {
	server := httptest.NewServer(newBare().Handler())
	defer server.Close()
	defer server.CloseClientConnections()
	var greedy []*http.Response
	for i := range most + 1 {
		response := ask(t, server, "127.0.0.2", report.Path, nil)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("reader %d: %s", i, response.Status)
		}
		greedy = append(greedy, response)
	}
	for _, response := range greedy[:len(greedy)-mostOfOne] { // these end, or the test does not
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatalf("an old reader is not told the end: %v", err)
		}
	}
	other := ask(t, server, "127.0.0.3", report.Path, nil)
	for _, response := range append(greedy[len(greedy)-mostOfOne:], other) {
		lines := bufio.NewScanner(response.Body)
		for range 3 {
			if !lines.Scan() {
				t.Errorf("%s: no lines: %v", response.Status, lines.Err())
			}
		}
	}
	if response := ask(t, server, "127.0.0.4", report.Path, strings.NewReader("x")); response.StatusCode != http.StatusBadRequest || !response.Close {
		t.Errorf("a body: %s, close %v", response.Status, response.Close)
	}
}

// There is an end to how many are let in, and room again when one leaves.
func TestReadersFull(t *testing.T) {
	s := &readers{}
	address := a.Addr()
	var leave func()
	for i := range most {
		_, done, ok := s.enter(t.Context(), address)
		if !ok {
			t.Fatalf("reader %d is refused", i)
		}
		address, leave = address.Next(), done
	}
	if _, _, ok := s.enter(t.Context(), address); ok {
		t.Errorf("more than %d are let in", most)
	}
	leave()
	if _, _, ok := s.enter(t.Context(), address); !ok {
		t.Error("no room although one left")
	}
}

// What the gateway knows of all peers is not for other pods.
func TestSnapshotIsLocal(t *testing.T) {
	handler := newBare().Handler()
	for from, want := range map[string]int{"127.0.0.1:999": http.StatusOK, "10.10.3.7:999": http.StatusForbidden} {
		for _, to := range []string{"127.0.0.1", "10.10.1.10"} {
			request := httptest.NewRequest(http.MethodGet, "/snapshot", nil)
			request.RemoteAddr = from
			request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(to)}))
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			if to != "127.0.0.1" {
				want = http.StatusForbidden
			}
			if answer.Code != want {
				t.Errorf("from %s to %s: %d, want %d", from, to, answer.Code, want)
			}
		}
	}
}

// busy is a host whose kernel does not answer until it is told to.
type busy struct {
	Host
	asked, answer chan struct{}
}

func (b busy) Implementation() string {
	b.asked <- struct{}{}
	<-b.answer
	return "kernel"
}

func (b busy) Tunnel() ([]host.TunnelPeer, error) { return nil, errors.New(b.Implementation()) }

// While the host is asked, which may take long, nodes are heard and the report is given: the one who hears also answers probes.
func TestNobodyWaitsForTheHost(t *testing.T) {
	for name, ask := range map[string]func(*Gateway){
		"report":  func(g *Gateway) { g.Report(time.Now()) },
		"metrics": func(g *Gateway) { g.Collect(make(chan prometheus.Metric, 100)) },
		"round":   func(g *Gateway) { g.lookAtPeers(time.Now(), agent.View{Peers: map[string]agent.PeerView{"milan": {}}}) },
	} {
		t.Run(name, func(t *testing.T) {
			slow := busy{asked: make(chan struct{}), answer: make(chan struct{})}
			g := newBare()
			g.host, g.resolver = slow, &resolver{}
			asking, others := make(chan struct{}), make(chan struct{})
			go func() { defer close(asking); ask(g) }()
			<-slow.asked
			go func() {
				defer close(others)
				g.hear(probe.NodeReport{Node: "n1"})
				g.Done(agent.Round{})
			}()
			select {
			case <-others:
			case <-time.After(10 * time.Second):
				t.Error("others wait until the host answers")
			}
			close(slow.answer)
			<-others
			<-asking
		})
	}
}
