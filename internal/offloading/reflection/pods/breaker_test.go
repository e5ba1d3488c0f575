// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"
)

// TestBreaker: the limit within the window opens the breaker, and the pause closes it.
func TestBreaker(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	changes := 0
	b := &breaker{limit: 3, changed: func() { changes++ }}
	for i, test := range []struct {
		after  time.Duration
		opened bool
		open   bool
	}{
		{0, false, false},
		{time.Minute, false, false},
		{failureWindow, false, false}, // the first is forgotten, the second just not
		{failureWindow + time.Second, true, true},
		{failureWindow + 2*time.Second, false, true}, // not counted
		{failureWindow + time.Second + failurePause, false, false},
		{failureWindow + time.Minute + failurePause, false, false},
		{failureWindow + 2*time.Minute + failurePause, true, true},
	} {
		at := now.Add(test.after)
		if opened := b.record(at); opened != test.opened || (b.message(at) != "") != test.open {
			t.Errorf("failure %d: opened %v, message %q", i, opened, b.message(at))
		}
	}
	if changes != 2 {
		t.Errorf("%d changes are reported, want 2", changes)
	}
}
