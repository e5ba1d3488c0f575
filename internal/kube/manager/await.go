// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	awaitInterval = time.Second
	awaitTimeout  = 5 * time.Second
)

// Await returns when the API server answers. A process that ended because it could not reach it any more starts again while it is still
// away, and if it ended each time, Kubernetes would let it wait for minutes after the API server is back. Until then the probes
// at healthAddress say that the process is alive and not ready; "" or "0" is nowhere.
func Await(ctx context.Context, cfg *rest.Config, healthAddress string) error {
	connection, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("connection to the API server: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	asked := server.JoinPath("/livez").String()
	err = ask(ctx, connection, asked)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	log.FromContext(ctx).Info("waiting for the API server", "address", server.Host, "reason", err.Error())
	if healthAddress = address(healthAddress); healthAddress != nowhere {
		stop, err := sayAlive(healthAddress)
		if err != nil {
			return err
		}
		defer stop()
	}
	again := time.NewTicker(awaitInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
			if ask(ctx, connection, asked) == nil {
				return nil
			}
		}
	}
}

// ask returns nil if somebody answers. An API server that refuses us, or has checks that fail, is there; what stands before one that is not
// answers with 502, 503 or 504.
func ask(ctx context.Context, connection *http.Client, url string) error {
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
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("GET %s was answered with %s", url, response.Status)
	}
	return nil
}

// sayAlive serves the probes until stop, which returns when the address is free again.
func sayAlive(healthAddress string) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: awaitTimeout}
	listener, err := net.Listen("tcp", healthAddress)
	if err != nil {
		return nil, fmt.Errorf("serve probes: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		_ = server.Close() // probes may be cut off
		<-ended
	}, nil
}
