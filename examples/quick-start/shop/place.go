// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// place is where a service runs, from the Downward API. An offloaded pod reads what its own cluster shows: its namespace there, and as its node the
// one that stands for the other cluster.
type place struct {
	Service   string `json:"service"`
	Node      string `json:"node"`
	Pod       string `json:"pod"`
	Namespace string `json:"namespace,omitempty"`
}

var nodeOfCluster = regexp.MustCompile(`^(?:liqo-(.+)|(.+?)-(?:worker|control-plane)\d*)$`)

// cluster derives the cluster from the name of the node: rome-worker2 belongs to rome, and liqo-milan stands for milan. Other names are returned unchanged.
func (p place) cluster() string {
	if match := nodeOfCluster.FindStringSubmatch(p.Node); match != nil {
		return match[1] + match[2]
	}
	return p.Node
}

// placesKey is metadata of gRPC and header of HTTP. "-bin" makes gRPC carry any bytes.
const (
	placesKey    = "shop-places-bin"
	placesHeader = "Shop-Places"
	maxPlaces    = 64
	maxPlaceText = 16 << 10
)

// trail collects the places that a request came through.
type trail struct {
	mu     sync.Mutex
	places []place
}

type trailKey struct{}

// follow returns a context whose calls of other services add their places to the trail.
func follow(ctx context.Context) (context.Context, *trail) {
	t := &trail{}
	return context.WithValue(ctx, trailKey{}, t), t
}

// visit adds places to the trail of ctx, each once.
func visit(ctx context.Context, places ...place) {
	t, ok := ctx.Value(trailKey{}).(*trail)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
next:
	for _, p := range places {
		for _, known := range t.places {
			if known == p {
				continue next
			}
		}
		if len(t.places) < maxPlaces {
			t.places = append(t.places, p)
		}
	}
}

func (t *trail) all() []place {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]place(nil), t.places...)
}

func (t *trail) encode() string {
	text, _ := json.Marshal(t.all()) // strings only: cannot fail
	return string(text)
}

func visitText(ctx context.Context, text string) {
	var places []place
	if len(text) <= maxPlaceText && json.Unmarshal([]byte(text), &places) == nil {
		visit(ctx, places...)
	}
}

// signUnary adds the place of this service, and of those that it called, to the response. It is a trailer, so errors
// also have it.
func signUnary(here place) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, t := follow(ctx)
		visit(ctx, here)
		reply, err := handle(ctx, request)
		if err := grpc.SetTrailer(ctx, metadata.Pairs(placesKey, t.encode())); err != nil {
			return nil, err
		}
		return reply, err
	}
}

// readUnary adds the place of the server to the trail, and bounds the duration of the call.
func readUnary(timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var trailer metadata.MD
		err := invoke(bounded, method, request, reply, connection, append(options, grpc.Trailer(&trailer))...)
		for _, text := range trailer.Get(placesKey) {
			visitText(ctx, text)
		}
		return err
	}
}

// signHTTP does the same for HTTP. Handlers must call other services before they write.
func signHTTP(here place, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, t := follow(r.Context())
		visit(ctx, here)
		next.ServeHTTP(&signingWriter{ResponseWriter: w, trail: t}, r.WithContext(ctx))
	})
}

type signingWriter struct {
	http.ResponseWriter
	trail  *trail
	signed bool
}

func (w *signingWriter) sign() {
	if !w.signed {
		w.signed = true
		w.Header().Set(placesHeader, w.trail.encode())
	}
}

func (w *signingWriter) WriteHeader(code int) {
	w.sign()
	w.ResponseWriter.WriteHeader(code)
}

func (w *signingWriter) Write(data []byte) (int, error) {
	w.sign()
	return w.ResponseWriter.Write(data)
}
