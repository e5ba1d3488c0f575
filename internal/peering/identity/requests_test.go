// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"testing"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/replicate"
)

func TestClassify(t *testing.T) {
	fc := &discoveryv1alpha1.ForeignCluster{}
	fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: "a"}
	for _, c := range []struct {
		err  error
		want conditions.IdentityState
	}{
		{&auth.Error{Code: 401, Reason: auth.ReasonEmptyDenied}, conditions.IdentityEmptyDenied},
		{&auth.Error{Code: 401, Reason: auth.ReasonDenied}, conditions.IdentityDenied},
		{&auth.Error{Code: 403, Reason: auth.ReasonConflict}, conditions.IdentityDenied},
		{&auth.Error{Reason: auth.ReasonUnproven, Message: "m"}, conditions.IdentityUnproven},
		{&auth.Error{Code: 400, Reason: auth.ReasonVersion, Message: "m"}, conditions.IdentityVersion},
		{&auth.Error{Code: 429, Reason: auth.ReasonTooMany}, conditions.IdentityError},
		{&auth.Error{Reason: auth.ReasonUnreachable}, conditions.IdentityUnreachable},
		{context.DeadlineExceeded, conditions.IdentityUnreachable},
		{&auth.Error{Code: 503, Reason: auth.ReasonUnavailable}, conditions.IdentityError},
		{errors.New("else"), conditions.IdentityError},
	} {
		if have, message := Classify(c.err, fc); have != c.want || message == "" {
			t.Errorf("%v: %d %q, want %d", c.err, have, message, c.want)
		}
	}
	for failures := range 20 {
		for _, state := range []conditions.IdentityState{conditions.IdentityDenied, conditions.IdentityUnreachable} {
			if wait := NextAttempt(state, failures, 0); wait < time.Second || wait > 5*time.Minute {
				t.Errorf("state %d, failure %d: next attempt in %v", state, failures, wait)
			}
		}
	}
	if wait := NextAttempt(conditions.IdentityError, 3, 7*time.Second); wait != 7*time.Second {
		t.Errorf("Retry-After of 7 s: next attempt in %v", wait)
	}
}

func TestRenewIn(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		renewAt time.Duration
		state   replicate.State
		want    time.Duration
	}{
		"half life is to come":                {10 * time.Minute, replicate.State{Connected: true, Ready: true}, 10 * time.Minute},
		"half life":                           {0, replicate.State{Connected: true, Ready: true}, 0},
		"past half life":                      {-time.Minute, replicate.State{Connected: true, Ready: true}, 0},
		"the token is refused":                {10 * time.Minute, replicate.State{Connected: true, Unauthorized: true, Since: now}, 0},
		"silent for a moment":                 {10 * time.Minute, replicate.State{Connected: true, Since: now.Add(-10 * time.Second)}, 20 * time.Second},
		"silent for long: it may have moved":  {10 * time.Minute, replicate.State{Connected: true, Since: now.Add(-time.Minute)}, 0},
		"not connected yet":                   {10 * time.Minute, replicate.State{}, 10 * time.Minute},
		"silent, and half life is to be soon": {5 * time.Second, replicate.State{Connected: true, Since: now}, 5 * time.Second},
	} {
		if have := RenewIn(now.Add(c.renewAt), c.state, now); have != c.want {
			t.Errorf("%s: %v, want %v", name, have, c.want)
		}
	}
}
