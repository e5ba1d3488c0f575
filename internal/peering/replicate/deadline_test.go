// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"testing"
	"time"
)

func TestEndingDeadline(t *testing.T) {
	zero := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		drained       time.Duration
		forced, ready bool
		want          time.Duration
	}{
		"ready, nothing to drain":    {0, false, true, 30 * time.Second},
		"ready, drained after 40 s":  {40 * time.Second, false, true, 70 * time.Second},
		"ready, drained at its end":  {120 * time.Second, false, true, 150 * time.Second},
		"ready, seen too late":       {time.Hour, false, true, 150 * time.Second},
		"silent, nothing to drain":   {0, false, false, 45 * time.Second},
		"silent, drained after 25 s": {25 * time.Second, false, false, 45 * time.Second},
		"silent after a long drain":  {110 * time.Second, false, false, 115 * time.Second},
		"forced":                     {10 * time.Second, true, true, 0},
		"forced and silent":          {10 * time.Second, true, false, 0},
	} {
		end := ending{deleted: zero, drained: zero.Add(test.drained), forced: test.forced, ready: test.ready}
		if got := end.deadline().Sub(zero); got != test.want {
			t.Errorf("%s: deadline %s after the deletion, want %s", name, got, test.want)
		}
	}
}
