// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExecute(t *testing.T) {
	t.Setenv("FOR_POD", "the-pod")
	dir := t.TempDir()
	message, once := filepath.Join(dir, "message"), filepath.Join(dir, "once")
	stopping, stop := context.WithCancel(t.Context())
	stop()
	seen := map[string]bool{}
	for _, test := range []struct {
		name    string
		ctx     context.Context
		lasting time.Duration
		once    string
		want    int
	}{
		{"it ends after its time", t.Context(), time.Millisecond, "", 0},
		{"a signal stops it", stopping, time.Hour, "", stopped},
		{"a signal stops it, and it has no end", stopping, 0, "", stopped},
		{"it requests a restart", t.Context(), time.Hour, once, restart},
		{"it requests a restart only once", t.Context(), time.Millisecond, once, 0},
	} {
		code, err := execute(test.ctx, test.lasting, test.once, message)
		if err != nil || code != test.want {
			t.Errorf("%s: code %d, %v; want %d", test.name, code, err, test.want)
		}
		text, err := os.ReadFile(message)
		words := strings.Fields(string(text))
		if err != nil || len(words) < 10 || words[4] != "the-pod" || seen[words[1]] {
			t.Errorf("%s: the message is %q, %v", test.name, text, err)
			continue
		}
		seen[words[1]] = true
	}
}
