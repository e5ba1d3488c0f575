// SPDX-License-Identifier: Apache-2.0

package auth

import "testing"

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "https://api.example.com": "https://api.example.com", "https://192.0.2.1:6443/": "https://192.0.2.1:6443",
		"192.0.2.1:6443": "https://192.0.2.1:6443", "api.example.com": "https://api.example.com", "[2001:db8::1]:6443": "https://[2001:db8::1]:6443",
		"https://gateway.example.com/clusters/7": "https://gateway.example.com/clusters/7",
		"http://192.0.2.1":                       "error", "https://": "error", "https://a:b@host": "error", "https://host?x": "error", "a b": "error",
	} {
		got, err := ParseAddress(text)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
