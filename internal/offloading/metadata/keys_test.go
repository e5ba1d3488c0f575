// SPDX-License-Identifier: Apache-2.0

package metadata

import "testing"

func TestKeys(t *testing.T) {
	keys, err := ParseKeys([]string{" exact.example.com/a ", "prefix.example.com/*"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"exact.example.com/a": true, "exact.example.com/ab": false, "prefix.example.com/": true, "prefix.example.com/x": true, "prefix.example.com": false,
		"prefix.example.com/*": true, "": false,
	} {
		if keys.Match(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
	for _, bad := range []string{"", " ", "a*b", "*a", "a**"} {
		if _, err := ParseKeys([]string{bad}); err == nil {
			t.Errorf("%q is accepted as a key", bad)
		}
	}
}
