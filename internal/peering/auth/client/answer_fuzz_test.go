// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"liqo.io/liqo/internal/peering/auth"
)

// A provider may answer anything.
func FuzzAnswers(f *testing.F) {
	const secret = "c0ffee00c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66c0ffee77"
	for _, seed := range []string{
		`{"namespace":"liqo-tenant-rome-abcdef","token":"a.b.c","expiresIn":3600,"apiServerUrl":"https://192.0.2.1:6443"}`,
		`{"namespace":"../x","token":"a b","expiresIn":-1,"apiServerUrl":"file:///etc/passwd","apiServerCA":"AAAA"}`,
		`{"code":401,"reason":"Denied","message":"\u001b[2J` + secret + `"}`, `{"expiresIn":9223372036854775807}`, "null", "",
	} {
		f.Add([]byte(seed), secret)
	}
	f.Fuzz(func(t *testing.T, body []byte, token string) {
		var answer auth.GrantAnswer
		if json.Unmarshal(body, &answer) == nil {
			if grant, err := granted(answer, token); err == nil && (grant.Lifetime <= 0 || grant.Token == "" || !strings.HasPrefix(grant.APIServerURL, "https://")) {
				t.Errorf("passed: %+v", grant)
			}
		}
		client := &Client{url: "https://192.0.2.1"}
		err := clean(client.refusal(&http.Response{StatusCode: 401}, body), token)
		if text := err.Error(); text == "" || len(text) > 2*maxMessage || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q", text)
		}
	})
}
