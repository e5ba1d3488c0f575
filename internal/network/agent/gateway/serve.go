// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/network/report"
)

const (
	// readers is how many may have an answer open at the same time.
	readers = 16
	// patience is how long one may take to read a line.
	patience = 5 * time.Second
	// often is how soon one line may follow another, and seldom how late.
	often, seldom = 20 * time.Millisecond, time.Second
)

// Handler answers at report.Port: the report, and for people who look for a fault what the gateway knows and has planned.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	free := make(chan struct{}, readers)
	mux.HandleFunc("GET "+report.Path, func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
			g.stream(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d others are reading already", readers), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /snapshot", g.show)
	return mux
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
func pause(r *http.Request, most time.Duration, news <-chan struct{}) bool {
	timer := time.NewTimer(most)
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
func (g *Gateway) show(w http.ResponseWriter, _ *http.Request) {
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
