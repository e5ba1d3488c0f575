// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/listener"
)

const (
	awaitInterval = time.Second
	awaitTimeout  = 5 * time.Second
)

// Await returns when the API server answers. A process that ended because it lost the API server is restarted while the API server is still
// unreachable. If it ended each time, the restart backoff would keep it down for minutes after the API server is back. While it waits, it
// serves probes at healthAddress: the process is alive and not ready. With "" or "0" it serves none.
func Await(ctx context.Context, cfg *rest.Config, healthAddress string) error {
	connection, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("connection to the API server: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	livez := server.JoinPath("/livez").String()
	err = check(ctx, connection, livez)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	log.FromContext(ctx).Info("waiting for the API server", "address", server.Host, "reason", err.Error())
	if healthAddress = address(healthAddress); healthAddress != disabled {
		stop, err := serveProbes(healthAddress)
		if err != nil {
			return err
		}
		defer stop()
	}
	tick := time.NewTicker(awaitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if check(ctx, connection, livez) == nil {
				return nil
			}
		}
	}
}

// check returns nil if the API server answers. One that refuses us, or whose checks fail, is reachable. The codes 502, 503 and 504 come from a
// proxy or load balancer in front of an unreachable one.
func check(ctx context.Context, connection *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := connection.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be reused
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("GET %s was answered with %s", url, response.Status)
	}
	return nil
}

// serveProbes serves /healthz and /readyz until stop, which returns when the address is free again.
func serveProbes(healthAddress string) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithCancel(context.Background())
	server, err := listener.Listen(ctx, healthAddress, listener.Port{Limits: listener.Small(), Handler: mux, Log: log.Log})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve probes: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	return func() {
		cancel() // a probe may fail
		<-ended
	}, nil
}
