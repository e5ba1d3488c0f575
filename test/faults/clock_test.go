// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// jumps is a cause that moves the clock of the whole machine, for clusters, containers and this test, and moves it back half a minute
// later.
func jumps(name string, by time.Duration) cause {
	moved := false
	back := func(t *testing.T) {
		if moved {
			moved = false
			moveClock(t, -by)
		}
	}
	return cause{
		name: name, named: true, hold: 30 * time.Second, end: back,
		start: func(t *testing.T) {
			t.Cleanup(func() { back(t) })
			moveClock(t, by)
			moved = true
		},
	}
}

// moveClock moves the clock by an offset, so that moving it back restores its accuracy. The monotonic clock does not change.
func moveClock(t *testing.T, by time.Duration) {
	t.Helper()
	start, before := time.Now(), time.Now().UnixNano()
	if _, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: unix.ADJ_SETOFFSET, Time: unix.Timeval{Sec: int64(by / time.Second)}}); err != nil {
		t.Fatalf("move the clock of this machine by %v: %v", by, err)
	}
	if moved := time.Duration(time.Now().UnixNano()-before) - time.Since(start); (moved - by).Abs() > time.Second {
		t.Errorf("the clock moved by %v, want %v", moved, by)
	}
}
