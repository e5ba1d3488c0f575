// SPDX-License-Identifier: Apache-2.0

package route

import (
	"testing"
	"time"

	"liqo.io/liqo/internal/network/probe"
)

// TestAttackFlappingLanes counts how often in an hour a node leads a peer over another lane, whose gateways answer on one of two lanes in turns,
// twice a second. A lane that is gone is left at once.
func TestAttackFlappingLanes(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := &Route{chosen: map[string]int{"milan": 0}, moves: newMoves()}
	moves, works, waits := 0, 0, 0
	for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(500 * time.Millisecond) {
		works = 1 - works
		status := func(lane int) probe.Status {
			if lane != works {
				return probe.Status{State: probe.Down}
			}
			return probe.Status{State: probe.Up, Steady: now.Add(-time.Second), Echoed: now, Last: now}
		}
		lane, again := r.lead("milan", []int{0, 1}, status, now)
		if lane != r.chosen["milan"] {
			moves++
		}
		if again == movePause {
			waits++
		}
		r.chosen["milan"] = lane
	}
	t.Logf("%d moves in an hour", moves)
	if most := moveBurst + int(time.Hour/movePause); moves > most || moves < moveBurst || waits == 0 {
		t.Errorf("%d moves in an hour, want at most %d; %d times the node waits", moves, most, waits)
	}
	r.chosen["milan"] = 0
	if lane, _ := r.lead("milan", []int{1}, func(int) probe.Status { return probe.Status{State: probe.Unknown} }, noon.Add(time.Hour)); lane != 1 {
		t.Errorf("lane %d is used, which is gone", lane)
	}
}
