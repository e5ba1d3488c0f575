// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"testing"
	"time"
)

// TestBreaker: the limit within the window opens the breaker, and the pause closes it.
func TestBreaker(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	changes := 0
	b := &Breaker{Limit: 3, Changed: func() { changes++ }}
	for i, test := range []struct {
		after  time.Duration
		opened bool
		open   bool
	}{
		{0, false, false},
		{time.Minute, false, false},
		{window, false, false}, // the first is forgotten, the second just not
		{window + time.Second, true, true},
		{window + 2*time.Second, false, true}, // not counted
		{window + time.Second + pause, false, false},
		{window + time.Minute + pause, false, false},
		{window + 2*time.Minute + pause, true, true},
	} {
		at := now.Add(test.after)
		if opened := b.Record(at); opened != test.opened || (b.Message(at) != "") != test.open {
			t.Errorf("failure %d: opened %v, message %q", i, opened, b.Message(at))
		}
	}
	if changes != 2 {
		t.Errorf("%d changes are reported, want 2", changes)
	}
}
