// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"liqo.io/liqo/internal/peering/auth"
)

// TestWaysAreForTheToken: the addresses of the gateways are for who has the token and makes a dry run, and signed; a failure to find them fails nothing.
func TestWaysAreForTheToken(t *testing.T) {
	stated, failure, asked := []byte(`[{"kind":"UDP"}]`), error(nil), 0
	b := newEnv(t, func(o *Options) {
		o.Ways = func(context.Context) ([]byte, error) { asked++; return stated, failure }
	})
	b.tokens.set(goodToken, nil)
	r := registration("key")
	r.Secret, r.DryRun = "a token that is wrong", true
	if grant, err := b.client.Register(t.Context(), r); err == nil || grant.Ways != nil || asked != 0 {
		t.Errorf("wrong token: %s, %v, asked %d times", grant.Ways, err, asked)
	}
	r.Secret = goodToken
	if grant, err := b.client.Register(t.Context(), r); err != nil || !bytes.Equal(grant.Ways, stated) {
		t.Errorf("right token: %s, %v", grant.Ways, err)
	}
	failure, stated = errors.New("no API server"), nil
	if grant, err := b.client.Register(t.Context(), r); err != nil || grant.Ways != nil {
		t.Errorf("not known: %s, %v", grant.Ways, err)
	}
	r.DryRun, asked = false, 0
	if grant, err := b.client.Register(t.Context(), r); err != nil || grant.Ways != nil || asked != 0 {
		t.Errorf("first contact: %s, %v, asked %d times", grant.Ways, err, asked)
	}
	to := auth.AnswerTo{Provider: "a", Consumer: "b"}
	none, some, other := auth.GrantAnswer{}, auth.GrantAnswer{Ways: []byte("x")}, auth.GrantAnswer{Ways: []byte("y")}
	if bytes.Equal(none.Signed(to), some.Signed(to)) || bytes.Equal(some.Signed(to), other.Signed(to)) {
		t.Error("the ways are not signed")
	}
}
