// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/internal/kube/listener"
)

// smallEnd is how long probes and readers of metrics may take to finish when the process ends.
const smallEnd = time.Second

// ported is a manager whose probes and metrics are served with bounds: those of controller-runtime accept any number of connections, and headers of 1 MiB.
type ported struct {
	manager.Manager
	health, ready *checks
}

// withPorts serves the probes and the metrics of a manager.
func withPorts(made manager.Manager, o Options) (manager.Manager, error) {
	p := &ported{made, &checks{}, &checks{}}
	if at := address(o.MetricsAddress); at != disabled {
		if err := p.serve("metrics", at, Metrics()); err != nil {
			return nil, err
		}
	}
	at := address(o.HealthAddress)
	if at == disabled {
		return p, nil
	}
	mux := http.NewServeMux()
	for path, all := range map[string]*checks{"/healthz": p.health, "/readyz": p.ready} {
		mux.Handle(path, http.StripPrefix(path, all))
		mux.Handle(path+"/", http.StripPrefix(path, all))
	}
	if err := p.serve("probes", at, mux); err != nil {
		return nil, err
	}
	return p, errors.Join(p.AddHealthzCheck("ping", healthz.Ping), p.AddReadyzCheck("caches", func(request *http.Request) error {
		if !made.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}))
}

// serve listens at once, and serves from the start of the manager, before its caches are filled, until its end.
func (p *ported) serve(name, address string, handler http.Handler) error {
	server, err := listener.Listen(context.Background(), address, listener.Port{Limits: listener.Small(), Handler: handler, Log: log.Log})
	if err != nil {
		return fmt.Errorf("port of the %s: %w", name, err)
	}
	return p.Add(&manager.Server{Name: name, Server: server.HTTP, Listener: server.Listener, ShutdownTimeout: new(smallEnd)})
}

// Metrics serves the metrics of this process at /metrics.
func Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	return mux
}

func (p *ported) AddHealthzCheck(name string, check healthz.Checker) error {
	return p.health.add(name, check)
}

func (p *ported) AddReadyzCheck(name string, check healthz.Checker) error {
	return p.ready.add(name, check)
}

// checks are those of one path.
type checks struct {
	mu  sync.Mutex
	all map[string]healthz.Checker
}

func (c *checks) add(name string, check healthz.Checker) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = maps.Clone(c.all)
	if c.all == nil {
		c.all = map[string]healthz.Checker{}
	}
	c.all[name] = check
	return nil
}

func (c *checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	(&healthz.Handler{Checks: all}).ServeHTTP(w, r)
}
