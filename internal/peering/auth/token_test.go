// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"testing"

	"liqo.io/liqo/internal/kube/clusterkey"
)

func TestParseToken(t *testing.T) {
	const secret = "c0ffee00c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66c0ffee77"
	print := clusterkey.Fingerprint(make([]byte, ed25519.PublicKeySize))
	for text, want := range map[string]Token{
		secret + "." + print:        {secret, print},
		secret + "." + print + "\n": {secret, print},
		"by.hand." + print:          {"by.hand", print},
		"." + print:                 {"", print},
		secret:                      {secret, ""},
		"by.hand":                   {"by.hand", ""},
		"":                          {},
	} {
		if got := ParseToken(text); got != want || ParseToken(got.String()) != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
