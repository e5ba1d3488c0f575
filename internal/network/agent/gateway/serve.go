// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/network/report"
)

const (
	// maxReaders bounds the readers at the same time, maxReadersPerSource those from one address. Any pod can connect here, and none may
	// keep the controller manager out: a newcomer takes the place of another reader, which connects again if it is honest.
	maxReaders, maxReadersPerSource = 64, 2
	// longestRead ends an answer; the reader then connects again.
	longestRead = time.Hour
	// writeTimeout is how long a reader may take for one line.
	writeTimeout = 5 * time.Second
	// often is the shortest time between two lines, seldom the longest.
	often, seldom = 20 * time.Millisecond, time.Second
)

// Handler serves at report.Port: the report and, for troubleshooting, the snapshot and the plan. It serves the latter on this pod's loopback
// only, where `kubectl port-forward` arrives.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	open := &readers{}
	mux.HandleFunc("GET "+report.Path, func(w http.ResponseWriter, r *http.Request) {
		ctx, done := open.enter(r.Context(), sourceOf(r))
		defer done()
		g.stream(w, r.WithContext(ctx))
	})
	mux.HandleFunc("GET /snapshot", func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r) {
			http.Error(w, "served on the pod's loopback only; use kubectl port-forward", http.StatusForbidden)
			return
		}
		g.show(w)
	})
	return closing(mux)
}

// closing serves one request per connection, so that idle connections occupy nothing.
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if r.ContentLength != 0 {
			http.Error(w, "this server accepts no request body", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readers are the open answers, oldest first.
type readers struct {
	mu  sync.Mutex
	all []*reader
}

type reader struct {
	source netip.Addr
	end    context.CancelFunc
}

// enter admits a reader until done is called. If there are too many, the context of another one ends.
func (s *readers) enter(ctx context.Context, source netip.Addr) (_ context.Context, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, end := context.WithTimeout(ctx, longestRead)
	mine := &reader{source, end}
	s.all = append(s.all, mine)
	// Pods that hold connections open lose theirs to the controller manager, which has one.
	if out := ratelimit.Excess(s.all, func(one *reader) netip.Addr { return one.source }, maxReaders, maxReadersPerSource); out >= 0 {
		s.all[out].end()
		s.all = slices.Delete(s.all, out, out+1)
	}
	return ctx, func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = slices.DeleteFunc(s.all, func(one *reader) bool { return one == mine })
	}
}

// sourceOf is the address a request came from.
func sourceOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // addresses that cannot be parsed count as one source
	return from.Addr().Unmap()
}

// isLoopback reports whether a request came from and to a loopback address.
func isLoopback(r *http.Request) bool {
	to, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return to != nil && to.IP.IsLoopback() && sourceOf(r).IsLoopback()
}

// stream writes lines until the reader disconnects.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	out, control := json.NewEncoder(w), http.NewResponseController(w)
	for {
		g.mu.Lock()
		updated := g.updated
		g.mu.Unlock()
		if control.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil || out.Encode(g.Report(time.Now())) != nil || control.Flush() != nil {
			return // the reader is gone or too slow, and connects again
		}
		if !pause(r, often, nil) || !pause(r, seldom, updated) {
			return
		}
	}
}

// pause waits until updated is closed, but at most for atMost. It is false if the reader went away.
func pause(r *http.Request, atMost time.Duration, updated <-chan struct{}) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
	case <-updated:
	}
	return true
}

// show prints the last iteration.
func (g *Gateway) show(w http.ResponseWriter) {
	g.mu.Lock()
	iteration := g.iteration
	g.mu.Unlock()
	text, err := yaml.Marshal(iteration.Snapshot)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "# snapshot of %s\n%s\n# plan, applied: %v\n%s", iteration.At.UTC().Format(time.RFC3339Nano), text, iteration.Applied, iteration.State)
	if iteration.Err != nil {
		fmt.Fprintf(w, "\n# errors\n%v\n", iteration.Err)
	}
}
