// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
)

// TestAttackL14: what changes the trust in a peer leaves a trace that an administrator can find and count.
func TestAttackL14(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	held := remote.Identity{APIServerURL: "https://milan:6443", APIServerCA: []byte("ca"), ExpiresAt: now.Add(time.Hour)}
	moved, otherCA, late := held, held, held
	moved.APIServerURL, moved.APIServerCA = "https://thief:6443", []byte("thief")
	otherCA.APIServerCA = []byte("thief")
	late.ExpiresAt = now.Add(-90 * time.Second)
	for name, test := range map[string]struct {
		before       *remote.Identity
		grant        remote.Identity
		reason, part string
	}{
		"first contact":   {nil, held, "", ""},
		"nothing stored":  {&remote.Identity{}, held, "", ""},
		"renewal":         {&held, held, "", ""},
		"another address": {&held, moved, "ProviderMoved", "https://thief:6443 instead of https://milan:6443"},
		"another CA":      {&held, otherCA, "ProviderCAChanged", "https://milan:6443"},
		"after a break":   {&late, held, "IdentityRenewed", "1m30s"},
	} {
		if got := GrantEvent(test.before, test.grant, now); got.Reason != test.reason || !strings.Contains(got.Note, test.part) {
			t.Errorf("%s: %+v", name, got)
		}
	}

	const url = "https://milan.example.org"
	closed := WhyInside(url, errSilent)
	refused := WhyInside(url, &auth.Error{Code: 403, Reason: auth.ReasonNotRegistered, Message: unprovenInside + url})
	unproven := WhyInside(url, &auth.Error{Reason: auth.ReasonUnproven, Message: "another key"})
	for name, test := range map[string]struct{ before, reason, event, part string }{
		"directly":                     {"", "", "", ""},
		"directly again":               {unproven, "", "", ""},
		"silent":                       {"", closed, "IdentityRenewedInside", "no authentication service answered at " + url + " (silent for 2s)"},
		"still silent":                 {closed, closed, "", ""},
		"refused":                      {"", refused, "IdentityRenewedInside", "what answers at " + url + " gave no identity, and has not proven"},
		"an impostor":                  {"", unproven, "ProviderUnproven", "an unproven service answers at " + url},
		"an impostor after silence":    {closed, unproven, "ProviderUnproven", "correct spec.foreignAuthUrl, or find out what answers there"},
		"an impostor after a forgery":  {refused, unproven, "ProviderUnproven", url},
		"still an impostor":            {unproven, unproven, "", ""},
		"an impostor who is quiet now": {unproven, closed, "", ""},
	} {
		if got := InsideEvent(test.before, test.reason); got.Reason != test.event || !strings.Contains(got.Note, test.part) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
