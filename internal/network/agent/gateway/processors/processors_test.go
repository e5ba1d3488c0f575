// SPDX-License-Identifier: Apache-2.0

package processors

import (
	"context"
	"runtime"
	"testing"
)

// TestProcessors: one processor until it is not enough, and again after it was enough for a while.
func TestProcessors(t *testing.T) {
	for all, more := range map[int]int{1: 1, 2: 1, 4: 2, 16: 8} {
		p := &processors{all: all, now: 1}
		for i, used := range []float64{0, 0.3, 0.79, 0.5} {
			if got := p.step(used); got != 1 {
				t.Errorf("%d processors, second %d: %d", all, i, got)
			}
		}
		if got := p.step(0.9); got != more {
			t.Errorf("busy, %d processors: %d, want %d", all, got, more)
		}
		p.step(0.1)
		if got := p.step(0.6); got != more { // counts from here
			t.Errorf("between, %d processors: %d, want %d", all, got, more)
		}
		for i := range calmFor {
			want := more
			if i == calmFor-1 {
				want = 1
			}
			if got := p.step(0.1); got != want {
				t.Errorf("calm for %d s, %d processors: %d, want %d", i+1, all, got, want)
			}
		}
	}
}

// TestAdjustProcessors: the process has what it had when it ends, and a number that the administrator has set stays.
func TestAdjustProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Adjust(ctx)
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors, before %d", now, before)
	}
	t.Setenv("GOMAXPROCS", "7")
	Adjust(t.Context())
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors, before %d", now, before)
	}
}
