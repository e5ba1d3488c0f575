// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
)

// TestMissed: a path of Liqo that misses a target of the list is marked, and what it is compared with is not.
func TestMissed(t *testing.T) {
	results := map[string]map[string][]float64{
		tunnelName: {tcp1: {2}, rate: {1000}, p50: {300}},
		onName:     {tcp1: {2.2}, rate: {700}, p50: {450}},
		"plain":    {tcp1: {1}, rate: {100}, p50: {900}},
	}
	text := ratios([]string{onName, "plain"}, tunnelName, results)
	for line, want := range map[string]string{
		onName:  "| 1.10 | – | – | 0.70 (MISSED, ≥ 0.85) | +150 (MISSED, ≤ 100 µs) |",
		"plain": "| 0.50 | – | – | 0.10 | +600 |",
	} {
		if !strings.Contains(text, "| "+line+" "+want) {
			t.Errorf("no %q of %q in\n%s", want, line, text)
		}
	}
	if text := ratios([]string{onName}, "plain", results); strings.Contains(text, "MISSED") {
		t.Errorf("targets beside a tunnel are applied to another comparison:\n%s", text)
	}
	for phase, measure := range memoryOf {
		if got := missed(measure, 1000); !strings.HasPrefix(got, " (MISSED, ≤ ") {
			t.Errorf("%s, 1000 MB: %q", phase, got)
		}
	}
}
