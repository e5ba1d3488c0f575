// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAwait: a process whose API server is unreachable is alive and not ready, and continues when the API server is back.
func TestAwait(t *testing.T) {
	apiServer, health := freeAddress(t), freeAddress(t)
	awaited := make(chan error, 1)
	go func() { awaited <- Await(t.Context(), &rest.Config{Host: "http://" + apiServer}, health) }()
	probe := func(path string) error {
		response, err := http.Get("http://" + health + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, response.Status)
		}
		return nil
	}
	kubetest.Eventually(t, "the process is alive", func() error { return probe("/healthz") })
	if probe("/readyz") == nil {
		t.Error("ready without an API server")
	}

	// An answer 503 comes from a proxy without an API server; 403 comes from an API server.
	var answer, requests atomic.Int32
	answer.Store(http.StatusServiceUnavailable)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(int(answer.Load()))
	}))
	listener, err := net.Listen("tcp", apiServer)
	must(t, err)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	kubetest.Eventually(t, "two requests", func() error {
		if have := requests.Load(); have < 2 {
			return fmt.Errorf("%d requests", have)
		}
		return nil
	})
	select {
	case err := <-awaited:
		t.Fatalf("Await returned without an API server: %v", err)
	default:
	}
	answer.Store(http.StatusForbidden)
	must(t, <-awaited)
	listener, err = net.Listen("tcp", health)
	if err != nil {
		t.Fatalf("the manager cannot serve its probes: %v", err)
	}
	_ = listener.Close()

	// If the API server is there, Await sends one request.
	before := requests.Load()
	must(t, Await(t.Context(), &rest.Config{Host: "http://" + apiServer}, health))
	if have := requests.Load() - before; have != 1 {
		t.Errorf("%d requests, want 1", have)
	}
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, &rest.Config{Host: "http://" + apiServer}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Await returned %v, want Canceled", err)
	}
}
