// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A stopwatch counts what the code waited for, and leaves out what the machine stood still in.
func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStopwatch(t)
		<-time.After(time.Second)
		if took := s.Took(); took != time.Second {
			t.Errorf("a second took %v", took)
		}
	})
	start := time.Unix(0, 0)
	s := &Stopwatch{start: start, last: start}
	for _, at := range []time.Duration{5, 10, 45, 3000, 3005, 3010} { // ms: busy before 45, nothing ran before 3000
		s.look(start.Add(at * time.Millisecond))
	}
	if want := 2950 * time.Millisecond; s.stood != want {
		t.Errorf("stood still for %v, want %v", s.stood, want)
	}
}
