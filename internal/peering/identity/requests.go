// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/replicate"
)

// Requests records, per ForeignCluster, the result of the last request for an identity and when the next one
// may be sent. It may be lost: then one request more is sent.
type Requests struct {
	mu  sync.Mutex
	all map[string]Request
}

type Request struct {
	Next     time.Time
	Failures int
	State    conditions.IdentityState
	Message  string
	// Basis identifies the inputs of the request: the generation of the spec, the version of the token, and the key that the peer is to know.
	Basis string
}

func NewRequests() *Requests {
	return &Requests{all: map[string]Request{}}
}

func (a *Requests) Get(name string) Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name]
}

func (a *Requests) Set(name string, now Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[name] = now
}

func (a *Requests) Forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, name)
}

// NextAttempt returns the backoff after a refusal, or the Retry-After of the peer. A changed token or spec does not
// wait for it.
func NextAttempt(state conditions.IdentityState, failures int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, 5*time.Minute)
	}
	first, last := time.Second, 30*time.Second
	if state != conditions.IdentityUnreachable && state != conditions.IdentityError {
		first, last = 5*time.Second, 5*time.Minute // an administrator has to act first
	}
	return min(first<<min(failures, 10), last)
}

// Classify turns the error of an authentication service into a state and a condition message.
func Classify(err error, fc *discoveryv1alpha1.ForeignCluster) (conditions.IdentityState, string) {
	peer := fc.Name
	switch {
	case errors.Is(err, auth.ErrUnproven):
		return conditions.IdentityUnproven, err.Error()
	case errors.Is(err, auth.ErrEmptyDenied):
		return conditions.IdentityEmptyDenied, fmt.Sprintf("the remote cluster requires a token, and Secret %s is missing or empty: "+
			"run `liqoctl generate peer-command` there, and paste its output here", auth.TokenSecretName(fc.Spec.ClusterIdentity.ClusterID))
	case errors.Is(err, auth.ErrDenied):
		return conditions.IdentityDenied, fmt.Sprintf(
			"the remote cluster refuses the token (%v): run `liqoctl generate peer-command` there, and paste its output here", err,
		)
	case errors.Is(err, auth.ErrConflict):
		return conditions.IdentityDenied, fmt.Sprintf("the remote cluster refuses our key: %v", err)
	case errors.Is(err, auth.ErrVersion):
		return conditions.IdentityVersion, err.Error()
	case errors.Is(err, auth.ErrTooMany):
		return conditions.IdentityError, fmt.Sprintf("the remote cluster asks us to slow down: %v", err)
	case errors.Is(err, auth.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		if fc.Inside() {
			return conditions.IdentityUnreachable, fmt.Sprintf("the tunnel is up, but no authentication service answers through the proxy of the "+
				"remote cluster (%v): check that its Deployments "+
				"liqo-proxy and liqo-auth run; if its addresses have changed, run `liqoctl peer in-band` again", err)
		}
		return conditions.IdentityUnreachable, fmt.Sprintf("no authentication service answers at %s (%v): check that the address is right and "+
			"reachable from this cluster, "+
			"and that `liqoctl status` reports no problem in the remote cluster", fc.Spec.ForeignAuthURL, err)
	default:
		return conditions.IdentityError, fmt.Sprintf("the authentication service of %s failed: %v", peer, err)
	}
}

// RenewIn returns the time until the identity is to be renewed: until half of its lifetime; zero when the API server
// rejects the token; and earlier when the API server stays silent, because its address or its certificate may have changed.
func RenewIn(renewAt time.Time, state replicate.State, now time.Time) time.Duration {
	if state.Unauthorized {
		return 0
	}
	wait := renewAt.Sub(now)
	if state.Connected && !state.Ready {
		wait = min(wait, state.Since.Add(MovedAfter).Sub(now))
	}
	return max(wait, 0)
}
