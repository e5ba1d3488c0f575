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

	"liqo.io/liqo/internal/network/report"
)

const (
	// most readers have an answer open at the same time, mostOfOne of them from one address. Any pod can connect here; none may keep
	// the controller manager out.
	most, mostOfOne = 64, 2
	// longestRead ends an answer; who wants more asks again.
	longestRead = time.Hour
	// patience is how long one may take to read a line.
	patience = 5 * time.Second
	// often is how soon one line may follow another, and seldom how late.
	often, seldom = 20 * time.Millisecond, time.Second
)

// Handler answers at report.Port: the report, and for people who look for a fault what the gateway knows and has planned. The latter
// is told to this pod's loopback only, where `kubectl port-forward` arrives.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	open := &readers{}
	mux.HandleFunc("GET "+report.Path, func(w http.ResponseWriter, r *http.Request) {
		ctx, done, ok := open.enter(r.Context(), sourceOf(r))
		if !ok {
			http.Error(w, fmt.Sprintf("%d others are reading already", most), http.StatusServiceUnavailable)
			return
		}
		defer done()
		g.stream(w, r.WithContext(ctx))
	})
	mux.HandleFunc("GET /snapshot", func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r) {
			http.Error(w, "this is answered on the pod's loopback only: kubectl port-forward leads there", http.StatusForbidden)
			return
		}
		g.show(w)
	})
	return closing(mux)
}

// closing gives each connection one answer: what follows it, or does not, occupies nothing.
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if r.ContentLength != 0 {
			http.Error(w, "a question has no body", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readers are the answers that are open, oldest first.
type readers struct {
	mu  sync.Mutex
	all []*reader
}

type reader struct {
	source netip.Addr
	end    context.CancelFunc
}

// enter lets one in, until done is called. A source that has too many loses its oldest; the context of that one ends.
func (s *readers) enter(ctx context.Context, source netip.Addr) (_ context.Context, done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest, same := -1, 0
	for i, one := range s.all {
		if one.source == source {
			same++
			if oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case same >= mostOfOne:
		s.all[oldest].end()
		s.all = slices.Delete(s.all, oldest, oldest+1)
	case len(s.all) >= most:
		return nil, nil, false
	}
	ctx, end := context.WithTimeout(ctx, longestRead)
	mine := &reader{source, end}
	s.all = append(s.all, mine)
	return ctx, func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = slices.DeleteFunc(s.all, func(one *reader) bool { return one == mine })
	}, true
}

// sourceOf is the address a request came from.
func sourceOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // all that cannot be told apart are one
	return from.Addr().Unmap()
}

// isLoopback tells whether a request came from and to a loopback address.
func isLoopback(r *http.Request) bool {
	to, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return to != nil && to.IP.IsLoopback() && sourceOf(r).IsLoopback()
}

// stream writes lines until the reader has enough.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	out, control := json.NewEncoder(w), http.NewResponseController(w)
	for {
		g.mu.Lock()
		news := g.news
		g.mu.Unlock()
		if control.SetWriteDeadline(time.Now().Add(patience)) != nil || out.Encode(g.Report(time.Now())) != nil || control.Flush() != nil {
			return // the reader is gone, or too slow: it asks again
		}
		if !pause(r, often, nil) || !pause(r, seldom, news) {
			return
		}
	}
}

// pause waits, at most until there is news. It is false if the reader went away.
func pause(r *http.Request, atMost time.Duration, news <-chan struct{}) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
	case <-news:
	}
	return true
}

// show prints the last round.
func (g *Gateway) show(w http.ResponseWriter) {
	g.mu.Lock()
	round := g.round
	g.mu.Unlock()
	text, err := yaml.Marshal(round.Snapshot)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "# snapshot of %s\n%s\n# plan, applied: %v\n%s", round.At.UTC().Format(time.RFC3339Nano), text, round.Applied, round.State)
	if round.Err != nil {
		fmt.Fprintf(w, "\n# errors\n%v\n", round.Err)
	}
}
