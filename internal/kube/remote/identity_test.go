// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testIdentity() Identity {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return Identity{
		Namespace:    "liqo-tenant-rome-abc123",
		APIServerURL: "https://milan.example:6443", ProxyURL: "http://user:secret-value@proxy.example:3128",
		Token: "header.payload.signature", RenewAt: now, ExpiresAt: now.Add(time.Hour),
	}
}

func TestIdentityRoundTrip(t *testing.T) {
	for _, invited := range []bool{false, true} {
		want := testIdentity()
		want.Invited = invited
		got, err := ParseIdentity(want.Data())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestIdentityIsStrict(t *testing.T) {
	good := testIdentity().Data()
	for name, change := range map[string]struct{ key, value string }{
		"plain http":           {keyURL, "http://milan.example"},
		"no host":              {keyURL, "https://"},
		"user in the URL":      {keyURL, "https://secret-value@milan.example"},
		"query in the URL":     {keyURL, "https://milan.example?x=secret-value"},
		"relative proxy":       {keyProxy, "proxy.example:3128"},
		"CA that is none":      {keyCA, "secret-value"},
		"CA with a bad block":  {keyCA, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		"no namespace":         {keyNamespace, ""},
		"namespace with path":  {keyNamespace, "a/../b"},
		"no token":             {keyToken, ""},
		"token with line feed": {keyToken, "secret-value\r\nX-Other: 1"},
		"no time":              {keyRenewAt, ""},
		"another time":         {keyExpiresAt, "tomorrow"},
	} {
		data := maps.Clone(good)
		data[change.key] = []byte(change.value)
		_, err := ParseIdentity(data)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), change.key) {
			t.Errorf("%s: the error does not name %s: %v", name, change.key, err)
		}
		if strings.Contains(err.Error(), "secret-value") {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
	if _, err := ParseIdentity(nil); err == nil {
		t.Error("an empty Secret was accepted")
	}
}

func TestSecretName(t *testing.T) {
	if got := SecretName("9a3b"); got != SecretName("9a3b") || got == SecretName("9a3c") || len(got) != len("liqo-identity-")+6 {
		t.Errorf("got %s", got)
	}
}

// FuzzParseIdentity: no Secret causes a panic, an accepted identity survives a round trip, and an error does not quote
// the Secret.
func FuzzParseIdentity(f *testing.F) {
	good := testIdentity().Data()
	add := func(change func(map[string][]byte)) {
		data := maps.Clone(good)
		change(data)
		f.Add(data[keyURL], data[keyCA], data[keyProxy], data[keyNamespace], data[keyToken], data[keyRenewAt], data[keyExpiresAt])
	}
	add(func(map[string][]byte) {})
	add(func(data map[string][]byte) { data[keyProxy] = nil })
	add(func(data map[string][]byte) { data[keyURL] = []byte("https://[fd00::1]:6443/k8s/clusters/c-1") })
	add(func(data map[string][]byte) {
		data[keyCA] = []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
	})
	add(func(data map[string][]byte) { data[keyRenewAt] = []byte("2026-11-21T10:00:00.5+02:00") })
	add(func(data map[string][]byte) { clear(data) })
	f.Fuzz(func(t *testing.T, address, ca, proxy, namespace, token, renew, expires []byte) {
		identity, err := ParseIdentity(map[string][]byte{
			keyURL: address, keyCA: ca, keyProxy: proxy,
			keyNamespace: namespace, keyToken: token, keyRenewAt: renew, keyExpiresAt: expires,
		})
		if err != nil {
			if len(token) > 8 && strings.Contains(err.Error(), string(token)) {
				t.Fatalf("the error quotes a secret: %v", err)
			}
			return
		}
		again, err := ParseIdentity(identity.Data())
		if err != nil {
			t.Fatalf("written and not accepted again: %v", err)
		}
		if diff := cmp.Diff(identity, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
