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

// TestAwait: a process whose API server is away lives, is not ready, and goes on when the API server is back.
func TestAwait(t *testing.T) {
	where, health := freeAddress(t), freeAddress(t)
	awaited := make(chan error, 1)
	go func() { awaited <- Await(t.Context(), &rest.Config{Host: "http://" + where}, health) }()
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
	kubetest.Eventually(t, "the process says that it lives", func() error { return probe("/healthz") })
	if probe("/readyz") == nil {
		t.Error("ready without an API server")
	}

	// Something before it that says so itself is no API server; one that does not know us is.
	var answer, asked atomic.Int32
	answer.Store(http.StatusServiceUnavailable)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(answer.Load()))
	}))
	listener, err := net.Listen("tcp", where)
	must(t, err)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	kubetest.Eventually(t, "asked twice", func() error {
		if have := asked.Load(); have < 2 {
			return fmt.Errorf("asked %d times", have)
		}
		return nil
	})
	select {
	case err := <-awaited:
		t.Fatalf("ended without an API server: %v", err)
	default:
	}
	answer.Store(http.StatusForbidden)
	must(t, <-awaited)
	again, err := net.Listen("tcp", health)
	if err != nil {
		t.Fatalf("the manager cannot serve its probes: %v", err)
	}
	_ = again.Close()

	// With an API server there is one question, and no wait.
	before := asked.Load()
	must(t, Await(t.Context(), &rest.Config{Host: "http://" + where}, health))
	if have := asked.Load() - before; have != 1 {
		t.Errorf("%d questions", have)
	}
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, &rest.Config{Host: "http://" + where}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
