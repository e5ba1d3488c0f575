// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"
	"time"
)

// TestLimiter: a key that has used up its budget takes nothing from the others, and only the most recently used are kept.
func TestLimiter(t *testing.T) {
	l := New[string](1, 5, 3)
	now := time.Unix(1000, 0)
	count := func(key string) (n int) {
		for range 20 {
			if l.Allow(key, now) {
				n++
			}
		}
		return n
	}
	if first, second, other := count("a"), count("a"), count("b"); first != 5 || second != 0 || other != 5 {
		t.Errorf("allowed %d, then %d, for another key %d; want 5, 0, 5", first, second, other)
	}
	now = now.Add(2 * time.Second)
	if got := count("a"); got != 2 {
		t.Errorf("allowed %d after two seconds, want 2", got)
	}
	for _, key := range []string{"c", "a", "d", "a"} { // b is the least recently used when d comes
		count(key)
	}
	if len(l.byKey) != 3 || l.recent.Len() != 3 || l.byKey["b"] != nil || count("a") != 0 || count("b") != 5 {
		t.Errorf("%d keys: %v", len(l.byKey), l.byKey)
	}
}
