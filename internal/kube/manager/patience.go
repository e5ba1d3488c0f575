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

// patienceInterval is how often, at the least, a watch tries to reach an API server that is away.
const patienceInterval = time.Second

// Patient lets the watches of cfg wait for an API server that is away, instead of failing. An informer that fails again and again tries
// less and less often, and learns only up to a minute after the API server is back what it missed. Whoever does not watch
// gets errors as before.
func Patient(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{next} })
	return cfg
}

type patience struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patience) RoundTrip(request *http.Request) (*http.Response, error) {
	for {
		response, err := p.next.RoundTrip(request)
		if err == nil || !isWatch(request) || !isAway(err) {
			return response, err
		}
		// Not all at once: there are dozens of watches in a process.
		again := time.NewTimer(patienceInterval/2 + rand.N(patienceInterval/2))
		select {
		case <-again.C:
		case <-request.Context().Done():
			again.Stop()
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (p patience) WrappedRoundTripper() http.RoundTripper { return p.next }

func isWatch(request *http.Request) bool {
	asked := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (asked == "true" || asked == "1")
}

// isAway: nothing was sent, because nobody could be reached.
func isAway(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}
