// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"sync"
	"testing"
	"time"
)

const (
	tick  = 5 * time.Millisecond
	pause = 50 * time.Millisecond // what a busy machine does now and then is no standstill
)

// Stopwatch measures how long something takes on a machine that may stand still, so that a bound judges the code and not the
// neighbours of the machine. It runs until the test ends.
type Stopwatch struct {
	mu          sync.Mutex
	start, last time.Time
	stood       time.Duration
}

// NewStopwatch starts one.
func NewStopwatch(t testing.TB) *Stopwatch {
	now := time.Now()
	s := &Stopwatch{start: now, last: now}
	ticker := time.NewTicker(tick)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				s.look(time.Now())
			}
		}
	}()
	return s
}

// look counts the time since it was last done, if that is much longer than it should be.
func (s *Stopwatch) look(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late := now.Sub(s.last) - tick; late > pause {
		s.stood += late
	}
	s.last = now
}

// Took is the time since the start, without that in which the machine stood still.
func (s *Stopwatch) Took() time.Duration { return time.Since(s.start) - s.Stood() }

// Stood is for how long the machine has stood still since the start.
func (s *Stopwatch) Stood() time.Duration {
	s.look(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stood
}
