// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A stopwatch counts what the code waited for, and leaves out what nobody could do anything in.
func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStopwatch(t)
		<-time.After(time.Second)
		if took := s.Took(); took != time.Second {
			t.Errorf("a second took %v", took)
		}
	})
	begin := time.Unix(0, 0)
	s := &Stopwatch{begin: begin, last: begin}
	for _, at := range []time.Duration{5, 10, 45, 3000, 3005, 3010} { // ms: busy before 45, nothing ran before 3000
		s.look(begin.Add(at * time.Millisecond))
	}
	if want := 2950 * time.Millisecond; s.stood != want {
		t.Errorf("stood still for %v, want %v", s.stood, want)
	}
}
