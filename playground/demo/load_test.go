// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/liqo/playground/demo/command"
)

// TestLoadCountsWhoAnswered stands two pods of two clusters behind one address.
func TestLoadCountsWhoAnswered(t *testing.T) {
	pods := []http.Handler{
		newWeb(command.Environment{Pod: "a", Node: "n1", Cluster: "rome"}).handler(),
		newWeb(command.Environment{Pod: "b", Node: "n2", Cluster: "milan"}).handler(),
	}
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := n.Add(1)
		if turn%10 == 0 {
			http.Error(w, "tenth", http.StatusServiceUnavailable)
			return
		}
		pods[turn%2].ServeHTTP(w, r)
	}))
	defer server.Close()

	code, out, complaints := execute(t, "load", "--url", server.URL+"/api/info", "--rate", "200", "--concurrency", "4", "--duration", "500ms", "-o", "json")
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	r := parsed[loadReport](t, out)
	if r.Requests != 100 || r.OK != 90 || r.Failed != 10 || r.NotSent != 0 || r.Statuses["200"] != 90 || r.Statuses["503"] != 10 {
		t.Errorf("counts: %+v", r)
	}
	if r.Pods["a"]+r.Pods["b"] != 90 || r.Nodes["n1"] != r.Pods["a"] || r.Clusters["milan"] != r.Pods["b"] || r.Pods["a"] == 0 || r.Pods["b"] == 0 {
		t.Errorf("distribution: %+v", r)
	}
	l := r.Latency
	if !(0 < l.Min && l.Min <= l.P50 && l.P50 <= l.P90 && l.P90 <= l.P95 && l.P95 <= l.P99 && l.P99 <= l.Max) {
		t.Errorf("latencies are not in order: %+v", l)
	}
	text := r.text()
	for _, want := range []string{"90 ok", "status    503", "cluster   milan", "pod       a"} {
		if !strings.Contains(text, want) {
			t.Errorf("text has no %q:\n%s", want, text)
		}
	}
}

// TestStallIsNotHidden: one worker, a server that stands still for the first request.
// The requests planned meanwhile were late, and the latencies must show it.
func TestStallIsNotHidden(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n.Add(1) == 1 {
			time.Sleep(400 * time.Millisecond) // the stall under test
		}
	}))
	defer server.Close()
	plan := loadPlan{url: server.URL, rate: 50, concurrency: 1, duration: time.Second, timeout: 5 * time.Second}
	if r := plan.run(t.Context()); r.Latency.P90 < 200 || r.Requests != 50 {
		t.Errorf("%d requests, p90 %.0f ms; want 50, of which 20 were up to 400 ms late", r.Requests, r.Latency.P90)
	}
}

// TestTooFewWorkersShow: a plan that the workers cannot follow ends, and reports how many
// requests were not sent.
func TestTooFewWorkersShow(t *testing.T) {
	server := webServer(t, command.Environment{Pod: "p"})
	plan := loadPlan{url: server.URL + "/api/slow?ms=50", rate: 1000, concurrency: 1, duration: 200 * time.Millisecond, timeout: 200 * time.Millisecond}
	if r := plan.run(t.Context()); r.NotSent < 150 || r.NotSent+r.Requests != 200 {
		t.Errorf("%d sent, %d not sent; want 200 together and at most some dozens sent", r.Requests, r.NotSent)
	}
}

func TestLoadFailures(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.Write([]byte("short"))
	}))
	defer cut.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for name, test := range map[string]struct{ url, problem string }{
		"no listener": {"http://" + freePort(t), "connection refused"},
		"no answer":   {slow.URL, "timeout"},
		"cut answer":  {cut.URL, "connection closed early"},
		"untrusted":   {secure.URL, "certificate not trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := "1m" // a busy machine must not turn another problem into this one
			if test.problem == "timeout" {
				timeout = "300ms"
			}
			code, out, complaints := execute(t, "load", "--url", test.url, "--rate", "20", "--duration", "200ms", "--timeout", timeout, "-o", "json")
			r := parsed[loadReport](t, out)
			if code != exitFailed || r.Requests == 0 || r.OK != 0 || r.Errors[test.problem] != r.Requests || !strings.Contains(complaints, test.url) {
				t.Errorf("exit %d, %q, report %+v; want only %q", code, complaints, r, test.problem)
			}
		})
	}
}

// TestLoadStopsWithItsContext: the limit only guards against the planned hour.
func TestLoadStopsWithItsContext(t *testing.T) {
	server := webServer(t, command.Environment{Pod: "p"})
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	for _, rate := range []float64{0, 1000} {
		start := time.Now()
		plan := loadPlan{url: server.URL, rate: rate, concurrency: 2, duration: time.Hour, timeout: time.Second, keepAlive: true}
		plan.run(ctx)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("rate %g: ran %s", rate, took)
		}
	}
}
