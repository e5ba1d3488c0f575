// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Variables, so that tests can shorten them.
var (
	// Timeouts of calls. A service that calls others gets a longer timeout, so that it can report which one did not
	// answer.
	storeTimeout  = time.Second
	callTimeout   = 1500 * time.Millisecond
	nestedTimeout = 2500 * time.Millisecond
	orderTimeout  = 6 * time.Second

	// linger is how long a service continues after SIGTERM, until no Service sends it requests any more.
	linger = time.Second
)

const (
	drainTimeout = 5 * time.Second // for requests that are open at SIGTERM
	readiness    = "ready"         // the service of gRPC's health protocol that readiness probes ask for
	maxBody      = 64 << 10
	keepAlive    = 10 * time.Second
)

// serveGRPC serves until ctx ends. ready returns why the service is not ready; a nil function means that it always is.
func serveGRPC(ctx context.Context, here place, listener net.Listener, ready func(context.Context) error, register func(*grpc.Server)) error {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(signUnary(here)),
		grpc.MaxRecvMsgSize(maxBody),
		grpc.ConnectionTimeout(callTimeout),
		// Connections end regularly, so that callers find pods that were added to a Service.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Minute, MaxConnectionAgeGrace: drainTimeout, Time: keepAlive, Timeout: callTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepAlive / 2, PermitWithoutStream: true}),
	)
	state := &grpcHealth{Server: health.NewServer(), ready: ready}
	healthv1.RegisterHealthServer(server, state)
	register(server)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", here.Service, err)
	case <-ctx.Done():
	}
	state.Shutdown()
	pause(linger)
	done := make(chan struct{})
	go func() { server.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTimeout):
		server.Stop()
	}
	return nil
}

// grpcHealth answers probes: "" for liveness, "ready" for readiness, which it determines anew at each probe.
type grpcHealth struct {
	*health.Server
	ready func(context.Context) error
}

func (h *grpcHealth) Check(ctx context.Context, request *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if request.GetService() != readiness {
		return h.Server.Check(ctx, request)
	}
	reply, err := h.Server.Check(ctx, &healthv1.HealthCheckRequest{})
	if err == nil && h.ready != nil && h.ready(ctx) != nil {
		reply = &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}
	}
	return reply, err
}

// serveHTTP serves handler, /healthz and /readyz until ctx ends.
func serveHTTP(ctx context.Context, here place, listener net.Listener, handler http.Handler) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("/", handler)
	server := &http.Server{
		Handler:           signHTTP(here, http.MaxBytesHandler(mux, maxBody)),
		ReadHeaderTimeout: callTimeout, ReadTimeout: 2 * callTimeout, WriteTimeout: 2 * orderTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", here.Service, err)
	case <-ctx.Done():
	}
	pause(linger)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", here.Service, err), server.Close())
	}
	return nil
}

func pause(d time.Duration) { <-time.After(d) }

// dial returns a connection to a service, which connects on demand. It is not encrypted: between clusters, the tunnel
// encrypts it.
func dial(address string, timeout time.Duration) (*grpc.ClientConn, error) {
	retry := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: callTimeout}
	// passthrough resolves the name at each attempt. The default resolver of gRPC waits up to two minutes between two
	// attempts, and the Service may be created a moment after this process started.
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: callTimeout}),
		// A pod that is lost with its node does not close the connection; keepalive detects that.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: callTimeout}),
		grpc.WithUnaryInterceptor(readUnary(timeout)),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("service at %s: %w", address, err)
	}
	return connection, nil
}

// getJSON calls a service by HTTP and decodes its answer.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	bounded, cancel := context.WithTimeout(ctx, nestedTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	visitText(ctx, response.Header.Get(placesHeader))
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.200s", response.Status, bytes.TrimSpace(body))
	}
	return json.Unmarshal(body, into)
}
