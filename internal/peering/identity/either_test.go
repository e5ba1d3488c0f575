// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/peering/auth"
)

// TestEither: a grant counts, whichever way it came by. The second way is asked when the first one is closed, silent or gives none, and takes nothing from it.
func TestEither(t *testing.T) {
	t.Parallel()
	closed, refused := &auth.Error{Reason: auth.ReasonUnreachable, Message: "closed"},
		&auth.Error{Code: http.StatusForbidden, Reason: auth.ReasonNotRegistered, Message: "refused"}
	unproven := &auth.Error{Reason: auth.ReasonUnproven, Message: "another key"}
	busy := func(wait time.Duration) error {
		return &auth.Error{Code: http.StatusTooManyRequests, Reason: auth.ReasonTooMany, Message: "busy", RetryAfter: wait}
	}
	long := &auth.Error{Reason: auth.ReasonUnreachable, Message: "closed\n" + strings.Repeat("x", 16<<10)}
	const hang, slow, late = time.Hour, 4 * time.Second, 1500 * time.Millisecond
	type by struct {
		after time.Duration
		err   error
	}
	for name, row := range map[string]struct {
		first, second by
		token, closed string
		err           string
		class         error
		wait          time.Duration
		took          time.Duration
		asked         bool
	}{
		"open":                           {first: by{}, token: "first"},
		"open, a little late":            {first: by{after: late}, token: "first", took: late},
		"closed":                         {first: by{err: closed}, token: "second", closed: "closed", asked: true},
		"closed late":                    {first: by{after: late, err: closed}, token: "second", closed: "closed", took: late, asked: true},
		"silent":                         {first: by{after: hang}, token: "second", closed: "silent", took: Silence, asked: true},
		"slow, and the other way closed": {first: by{after: slow}, second: by{err: closed}, token: "first", took: slow, asked: true},
		"slow, and the other way silent": {first: by{after: slow}, second: by{after: hang}, token: "first", took: slow, asked: true},
		"slow, and the other way busy":   {first: by{after: slow}, second: by{err: busy(time.Minute)}, token: "first", took: slow, asked: true},
		"slow, and the other refuses":    {first: by{after: slow}, second: by{err: refused}, token: "first", took: slow, asked: true},
		"both slow":                      {first: by{after: slow}, second: by{after: slow}, token: "first", took: slow, asked: true},
		"refused by the first":           {first: by{err: refused}, token: "second", closed: "refused", asked: true},
		"refused late by the first": {
			first: by{after: slow, err: refused}, second: by{after: slow}, token: "second", closed: "refused", took: Silence + slow, asked: true,
		},
		"unproven by the first":    {first: by{err: unproven}, token: "second", closed: "another key", asked: true},
		"busy, and the other open": {first: by{err: busy(5 * time.Minute)}, token: "second", closed: "busy", asked: true},
		"refused": {
			first: by{err: refused}, second: by{err: refused}, err: "refused; through the tunnel: refused", class: auth.ErrConflict, asked: true,
		},
		"refused, and the other closed": {
			first: by{err: refused}, second: by{err: closed}, err: "refused; through the tunnel: closed", class: auth.ErrConflict, asked: true,
		},
		"refused, and the other silent": {
			first: by{err: refused}, second: by{after: hang}, err: "refused; through the tunnel: silent", class: auth.ErrConflict,
			took: secondTimeout, asked: true,
		},
		"unproven, and the other closed": {
			first: by{err: unproven}, second: by{err: closed}, err: "another key; through the tunnel: closed", class: auth.ErrUnproven, asked: true,
		},
		"unproven, and the other busy": {
			first: by{err: unproven}, second: by{err: busy(time.Minute)}, err: "another key; through the tunnel: busy", class: auth.ErrUnproven,
			asked: true,
		},
		"busy": {
			first: by{err: busy(time.Minute)}, second: by{err: busy(time.Minute)}, err: "busy", class: auth.ErrTooMany, wait: time.Minute,
			asked: true,
		},
		"busy, and the other closed": {
			first: by{err: busy(time.Minute)}, second: by{err: closed}, err: "busy", class: auth.ErrTooMany, wait: time.Minute, asked: true,
		},
		"busy, and less so by the other": {
			first: by{err: busy(5 * time.Minute)}, second: by{err: busy(time.Second)}, err: "busy", class: auth.ErrTooMany, wait: time.Second,
			asked: true,
		},
		"busy, and refused by the other": {
			first: by{err: busy(5 * time.Minute)}, second: by{err: refused}, err: "busy; through the tunnel: refused", class: auth.ErrTooMany,
			asked: true,
		},
		"refused by the second": {first: by{err: closed}, second: by{err: refused}, err: "refused", class: auth.ErrConflict, asked: true},
		"busy by the second": {
			first: by{err: closed}, second: by{err: busy(time.Minute)}, err: "busy", class: auth.ErrTooMany, wait: time.Minute, asked: true,
		},
		"unproven by the second": {
			first: by{after: hang}, second: by{err: unproven}, err: "another key", class: auth.ErrUnproven, took: RegisterTimeout, asked: true,
		},
		"both closed": {
			first: by{err: closed}, second: by{err: closed}, err: "closed; through the tunnel: closed", class: auth.ErrUnreachable, asked: true,
		},
		"closed with many words": {
			first: by{err: long}, second: by{err: long}, err: " ...; through the tunnel: closed xxx", class: auth.ErrUnreachable, asked: true,
		},
		"both silent": {
			first: by{after: hang}, second: by{after: hang}, err: "deadline", class: auth.ErrUnreachable, took: RegisterTimeout, asked: true,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Bool
			one := func(name string, by by) Attempt {
				return func(ctx context.Context) (auth.Grant, error) {
					asked.Store(asked.Load() || name == "second")
					select {
					case <-time.After(by.after):
						return auth.Grant{Token: name}, by.err
					case <-ctx.Done():
						return auth.Grant{}, ctx.Err()
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), RegisterTimeout)
			defer cancel()
			began := time.Now()
			grant, closed, err := Either(ctx, one("first", row.first), one("second", row.second), Silence)
			took := time.Since(began)
			var answer *auth.Error
			switch {
			case row.err == "" && (err != nil || grant.Token != row.token ||
				row.closed == "" != (closed == nil) || closed != nil && !strings.Contains(closed.Error(), row.closed)):
				t.Errorf("%s: the grant of %q, because %v, %v; want %q, because %q", name, grant.Token, closed, err, row.token, row.closed)
			case row.err != "" && (!errors.Is(err, row.class) || !strings.Contains(err.Error(), row.err) ||
				len(err.Error()) > printable.MaxLine || strings.Contains(err.Error(), "\n")):
				t.Errorf("%s: %v, want %q, which is %v", name, err, row.err, row.class)
			case row.err != "" && (!errors.As(err, &answer) || answer.RetryAfter != row.wait):
				t.Errorf("%s: %+v, want %v until the next try", name, answer, row.wait)
			case took != row.took || asked.Load() != row.asked:
				t.Errorf("%s: it took %v, and the second way was asked: %t; want %v, %t", name, took, asked.Load(), row.took, row.asked)
			}
		})
	}
}
