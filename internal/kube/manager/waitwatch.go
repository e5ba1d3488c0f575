// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// watchRetry is the longest interval between two attempts of a watch to connect to an unreachable API server.
const watchRetry = time.Second

// WaitWatches returns a copy of cfg whose watch requests wait for an unreachable API server instead of failing. An informer whose watches fail
// backs off, and would observe what it missed only up to a minute after the API server is back. Other requests fail at once, as usual.
func WaitWatches(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchWaiter{next} })
	return cfg
}

// watchWaiter is a RoundTripper that repeats a watch request until a connection can be opened.
type watchWaiter struct{ next http.RoundTripper }

func (w watchWaiter) RoundTrip(request *http.Request) (*http.Response, error) {
	for {
		response, err := w.next.RoundTrip(request)
		if err == nil || !isWatch(request) || !isUnreachable(err) {
			return response, err
		}
		// A process has dozens of watches: spread their attempts.
		retry := time.NewTimer(watchRetry/2 + rand.N(watchRetry/2))
		select {
		case <-retry.C:
		case <-request.Context().Done():
			retry.Stop()
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (w watchWaiter) WrappedRoundTripper() http.RoundTripper { return w.next }

func isWatch(request *http.Request) bool {
	value := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (value == "true" || value == "1")
}

// isUnreachable: no connection could be opened, so nothing was sent.
func isUnreachable(err error) bool {
	failure, ok := errors.AsType[*net.OpError](err)
	return ok && failure.Op == "dial"
}
