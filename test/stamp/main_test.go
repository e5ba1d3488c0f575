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

func TestLive(t *testing.T) {
	t.Setenv("FOR_POD", "the-pod")
	dir := t.TempDir()
	message, once := filepath.Join(dir, "message"), filepath.Join(dir, "once")
	told, stop := context.WithCancel(t.Context())
	stop()
	seen := map[string]bool{}
	for _, test := range []struct {
		name    string
		ctx     context.Context
		lasting time.Duration
		once    string
		want    int
	}{
		{"it ends by itself", t.Context(), time.Millisecond, "", 0},
		{"it is told to stop", told, time.Hour, "", stopped},
		{"it is told to stop, and would last for ever", told, 0, "", stopped},
		{"it wants to be started again", t.Context(), time.Hour, once, again},
		{"once", t.Context(), time.Millisecond, once, 0},
	} {
		code, err := live(test.ctx, test.lasting, test.once, message)
		if err != nil || code != test.want {
			t.Errorf("%s: code %d, %v; want %d", test.name, code, err, test.want)
		}
		text, err := os.ReadFile(message)
		words := strings.Fields(string(text))
		if err != nil || len(words) < 10 || words[4] != "the-pod" || seen[words[1]] {
			t.Errorf("%s: it said %q, %v", test.name, text, err)
			continue
		}
		seen[words[1]] = true
	}
}
