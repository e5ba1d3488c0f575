// SPDX-License-Identifier: Apache-2.0

package targets

import "testing"

// TestTargets: the list can be read, and a value is judged by the sign of its target.
func TestTargets(t *testing.T) {
	all, err := All()
	if err != nil || len(all) < 10 {
		t.Fatalf("%d targets, %v", len(all), err)
	}
	for _, target := range all {
		if got, err := Of(target.Area, target.Measure); err != nil || got != target {
			t.Errorf("%+v, then %+v, %v", target, got, err)
		}
	}
	if _, err := Of("network", "nothing"); err == nil {
		t.Error("a measure without a line has a target")
	}
	for _, test := range []struct {
		line  string
		value float64
		want  bool
	}{
		{"network | TCP | ≥ 0.95", 0.95, true},
		{"network | TCP | ≥ 0.95", 0.94, false},
		{"playground | up | ≤ 30 s", 30, true},
		{"playground | up | ≤ 30 s", 30.1, false},
	} {
		target, err := parse(test.line)
		if err != nil || target.Met(test.value) != test.want {
			t.Errorf("%s: %v is judged %v, %v", test.line, test.value, !test.want, err)
		}
	}
	for _, line := range []string{"network | TCP", "network | TCP | 0.95", "network | TCP | ≥ much", "network | TCP | ≥"} {
		if _, err := parse(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}
