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
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/report"
)

// bare is a host without anything.
type bare struct{ Host }

func (bare) Implementation() string             { return "kernel" }
func (bare) Tunnel() ([]host.TunnelPeer, error) { return nil, nil }

func newBare() *Gateway {
	hub := carrier.New(carrier.Options{Log: logr.Discard()})
	return &Gateway{
		o: Options{Log: logr.Discard(), Hub: hub, Keys: &Keyring{}}, streams: newStreams(hub, logr.Discard(), func() {}), host: bare{},
		prober: probe.New(probe.Options{}), peers: map[string]*peer{}, updated: make(chan struct{}),
	}
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
	for i := range maxReaders + 1 {
		response := ask(t, server, "127.0.0.2", report.Path, nil)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("reader %d: %s", i, response.Status)
		}
		greedy = append(greedy, response)
	}
	for _, response := range greedy[:len(greedy)-maxReadersPerSource] { // these end, or the test does not
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatalf("the answer of an old reader does not end properly: %v", err)
		}
	}
	other := ask(t, server, "127.0.0.3", report.Path, nil)
	for _, response := range append(greedy[len(greedy)-maxReadersPerSource:], other) {
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

// TestAttackReaders: pods that hold as many connections as they get keep the controller manager from no report, neither two of each of many pods, nor one
// of each of more. It keeps its connection while they open others, and the number of readers is bounded.
func TestAttackReaders(t *testing.T) {
	controller := netip.MustParseAddr("10.200.9.9")
	for _, each := range []int{maxReadersPerSource, 1} {
		s := &readers{}
		pod := hostA.Addr()
		var last func()
		hold := func() {
			for range each {
				_, last = s.enter(t.Context(), pod)
			}
			pod = pod.Next()
		}
		for range maxReaders / each {
			hold()
		}
		ctx, done := s.enter(t.Context(), controller)
		if ctx.Err() != nil || len(s.all) != maxReaders {
			t.Errorf("%d connections of each pod: that of the controller manager: %v; %d are open", each, ctx.Err(), len(s.all))
		}
		for range maxReaders / 2 {
			hold()
		}
		if ctx.Err() != nil || len(s.all) != maxReaders {
			t.Errorf("%d connections of each pod, later: that of the controller manager: %v; %d are open", each, ctx.Err(), len(s.all))
		}
		if done(); len(s.all) != maxReaders-1 {
			t.Errorf("a reader left, and %d are open", len(s.all))
		}
		if last(); len(s.all) != maxReaders-2 {
			t.Errorf("two readers left, and %d are open", len(s.all))
		}
	}
}

// Other pods cannot read the snapshot.
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

// busy is a host whose kernel answers only when the test sends to answer.
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

// During a call to the host, which may take long, the gateway records the reports of nodes and serves its own: the goroutine that receives
// the reports also answers probes.
func TestSlowHostBlocksNothing(t *testing.T) {
	for name, ask := range map[string]func(*Gateway){
		"report":  func(g *Gateway) { g.Report(time.Now()) },
		"metrics": func(g *Gateway) { g.Collect(make(chan prometheus.Metric, 100)) },
		"round": func(g *Gateway) {
			g.observePeers(time.Now(), agent.View{Peers: map[string]agent.PeerView{"milan": {}}})
		},
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
				g.receive(probe.NodeReport{Node: "n1"})
				g.Done(agent.Iteration{})
			}()
			select {
			case <-others:
			case <-time.After(kubetest.InTime):
				t.Error("others wait until the host answers")
			}
			close(slow.answer)
			<-others
			<-asking
		})
	}
}
