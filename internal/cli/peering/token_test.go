// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"
)

func TestReadToken(t *testing.T) {
	t.Setenv(TokenVariable, " from-environment\n")
	for name, test := range map[string]struct {
		flag string
		set  bool
		want string
	}{
		"flag":        {"from-flag", true, "from-flag"},
		"empty flag":  {"", true, ""},
		"input":       {"-", true, "from-input"},
		"environment": {"", false, "from-environment"},
	} {
		got, err := readToken(test.flag, test.set, strings.NewReader("from-input\n"))
		if got != test.want || err != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"https://192.0.2.1:443": "https://192.0.2.1:443", "https://[::1]": "'https://[::1]'", "a'b": `'a'\''b'`, "": "''",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
