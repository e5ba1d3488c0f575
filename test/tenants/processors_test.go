// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The playground runs all clusters, the attack and the test on the processors of one machine. So a start that takes longer under an attack may only show that
// the machine is busy.

// processorTime is what all processors of the machine did since it started, in ticks.
type processorTime struct{ busy, all int64 }

func processors(t *testing.T) processorTime {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var now processorTime
	for i, field := range strings.Fields(line)[1:9] { // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatalf("/proc/stat: %v in %q", err, line)
		}
		now.all += ticks
		if i != 3 && i != 4 {
			now.busy += ticks
		}
	}
	return now
}

// since is the share of the processors that was busy since then, in per cent.
func (p processorTime) since(then processorTime) int64 {
	return 100 * (p.busy - then.busy) / max(1, p.all-then.all)
}
