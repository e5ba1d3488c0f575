// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// serveAt answers /readyz at address until stop is called.
func serveAt(t *testing.T, address string) (stop func(), at string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusTeapot) // an error, but an answer
		}
	})}}
	server.Start()
	return func() { server.CloseClientConnections(); server.Close() }, listener.Addr().String()
}

func TestRunStartsANewSessionAfterAnOutage(t *testing.T) {
	// An address of its own: no other process takes the port while the server is away.
	stop, address := serveAt(t, fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(254), rand.N(256), 1+rand.N(254)))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://" +
		address + "\"}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	sessions, away := 0, 0
	options := Options{Kubeconfig: path, Probe: 5 * time.Millisecond, Away: func(error) { away++ }}
	err := Run(ctx, options, func(ctx context.Context, config *rest.Config) error {
		sessions++
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		get := func() error {
			response, err := client.Get("http://" + address + "/api")
			if err == nil {
				response.Body.Close()
			}
			return err
		}
		if err := get(); err != nil || ctx.Err() != nil {
			t.Errorf("session %d: an answered request gives %v, context %v", sessions, err, ctx.Err())
		}
		if sessions == 2 {
			return nil
		}
		stop()
		if err := get(); err == nil {
			t.Error("a closed server answers")
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrAway) {
			t.Errorf("the session ended because of %v", context.Cause(ctx))
		}
		again, _ := serveAt(t, address)
		t.Cleanup(again)
		return context.Cause(ctx)
	})
	if err != nil || sessions != 2 || away != 1 {
		t.Errorf("%d sessions, away %d times, error %v", sessions, away, err)
	}
}

func TestRunWaitsForTheFileAndEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	options := Options{Kubeconfig: filepath.Join(t.TempDir(), "not-yet"), Probe: time.Millisecond, Away: func(error) { cancel(cause) }}
	err := Run(ctx, options, func(context.Context, *rest.Config) error {
		t.Error("a session without a server")
		return nil
	})
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}
