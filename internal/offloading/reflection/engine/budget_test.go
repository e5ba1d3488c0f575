// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"
)

// TestAttackStatuses: a provider that changes long statuses without end has this cluster store what the budget allows and no more, and
// short ones count as well. What waits costs nothing.
func TestAttackStatuses(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for name, row := range map[string]struct{ size, counts int }{
		"long": {130_000, 130_000}, "short": {1, leastStatus},
		"longer than the burst": {statusBurst + 1, statusBurst},
	} {
		e := &Engine{statuses: newStatusBudget()}
		written, refused := 0, 0
		for at := time.Duration(0); at < 5*time.Minute; at += 2 * time.Millisecond {
			if wait := e.SpendStatus(row.size, start.Add(at)); wait > 0 {
				refused++
			} else {
				written++
			}
		}
		allowed := statusBurst + 300*statusPerSecond
		if bytes := written * row.counts; refused == 0 || bytes > allowed || bytes < allowed-2*row.counts && bytes < 150_000*row.counts {
			t.Errorf("%s: %d written, %d refused; %d bytes count, %d are allowed", name, written, refused, bytes, allowed)
		}
	}
}
