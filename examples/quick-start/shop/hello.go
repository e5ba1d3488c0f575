// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// runHello serves the page of the two pods of hello-world.yaml: the answering pod, in the format that the Quick Start expects.
func runHello(ctx context.Context, c config, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		address := "unknown"
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			address = local.String()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, "Server address: %s\nServer name: %s\nNode: %s\nClient: %s\n", address, c.place.Pod, c.place.Node, r.RemoteAddr)
	})
	return serveHTTP(ctx, c.place, listener, mux)
}
