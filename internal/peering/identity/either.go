// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/peering/auth"
)

// RegisterTimeout is how long a request for an identity may take. The provider creates a tenant during first contact and waits up to ten seconds for it.
const RegisterTimeout = 12 * time.Second

// Silence is how long the first way may be silent before the other one is asked as well. A renewal takes some milliseconds.
const Silence = 2 * time.Second

// Attempt asks for an identity by one way.
type Attempt func(context.Context) (auth.Grant, error)

// errSilent is why the second way was asked while the first one could still answer.
var errSilent = silentFor(Silence)

func silentFor(so time.Duration) error {
	return &auth.Error{Reason: auth.ReasonUnreachable, Message: fmt.Sprintf("silent for %v", so)}
}

// secondTimeout is how long the second way may take after a service answered by the first one and gave no identity: what that answer means has to be
// handled within the same time.
const secondTimeout = 5 * time.Second

// Either asks by the first way, and by the second one as well as soon as the first one fails, or is silent for long. A grant counts at once: it is signed, and
// no other answer is, so one by one way does not end the other. failed is why there was no grant by the first way, if it came by the second one.
func Either(ctx context.Context, first, second Attempt, silence time.Duration) (grant auth.Grant, failed, err error) {
	type answer struct {
		second bool
		grant  auth.Grant
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the other attempt
	answers := make(chan answer, 2)
	ask := func(is bool, by Attempt) {
		grant, err := by(ctx)
		answers <- answer{is, grant, err}
	}
	go ask(false, first)
	silent := time.NewTimer(silence)
	defer silent.Stop()
	var other error // of the second way
	var late <-chan time.Time
	for waiting, asked := 1, false; ; {
		select {
		case <-silent.C:
			failed = cmp.Or(failed, errSilent)
		case <-late:
			return auth.Grant{}, nil, failedBoth(failed, silentFor(secondTimeout))
		case got := <-answers:
			waiting--
			switch {
			case got.err == nil && got.second:
				return got.grant, failed, nil
			case got.err == nil:
				return got.grant, nil, nil
			case got.second:
				other = got.err
			default:
				failed = got.err
				if !noAnswer(failed) {
					late = time.After(secondTimeout)
				}
			}
		}
		if !asked && failed != nil {
			asked = true
			waiting++
			go ask(true, second)
		}
		if waiting == 0 {
			return auth.Grant{}, nil, failedBoth(failed, other)
		}
	}
}

// failedBoth is the error of two ways that failed: that of the first one if a service answered, so that callers know what it refused, else that of the second
// one. The first answer is not signed, and does not have the next try wait longer than an answer by the second way does.
func failedBoth(first, second error) error {
	const limit = 512
	message := printable.Line(first.Error(), limit) + "; through the tunnel: " + printable.Line(second.Error(), limit)
	var refusal, other *auth.Error
	switch {
	case noAnswer(first) && noAnswer(second):
		return &auth.Error{Reason: auth.ReasonUnreachable, Message: message}
	case noAnswer(first):
		return second
	case !errors.As(first, &refusal):
		return first // a failure of this cluster
	}
	both := *refusal
	both.Message = message
	if errors.As(second, &other) && !noAnswer(second) {
		both.RetryAfter = min(both.RetryAfter, other.RetryAfter)
	}
	return &both
}

// noAnswer reports whether an attempt failed because no authentication service answered.
func noAnswer(err error) bool {
	return errors.Is(err, auth.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

// unprovenInside is the prefix of whyInside if another service answers in the place of the provider's. What a service sends follows later in the
// text, and cannot imitate it.
const unprovenInside = "an unproven service answers at "

// WhyInside is why an identity was renewed through the tunnel although the provider is usually reached at a URL.
func WhyInside(url string, failed error) string {
	const limit = 384
	switch {
	case errors.Is(failed, auth.ErrUnproven):
		return printable.Line(unprovenInside+url+
			", and the provider has proven itself through the tunnel: another cluster may have this address now, or a machine on the way "+
			"answers in its place; correct spec.foreignAuthUrl, or find out what answers there", limit)
	case noAnswer(failed):
		return printable.Line(fmt.Sprintf("no authentication service answered at %s (%v)", url, failed), limit)
	}
	return printable.Line(fmt.Sprintf("what answers at %s gave no identity, and has not proven that it is the provider (%v)", url, failed), limit)
}
