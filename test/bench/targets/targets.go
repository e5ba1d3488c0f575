// SPDX-License-Identifier: Apache-2.0

// Package targets has the list of what benchmarks should reach, in targets.txt, so that no benchmark and no page has numbers of its own.
//
// It must not know how anything is measured. TestTargets proves that the list can be read, and the test of the same name in the root that the page shows it.
package targets

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Target is one line of the list.
type Target struct {
	Area, Measure string
	// Text is the target as people read it, such as "≤ 30 s".
	Text string
	// Least is whether the bound is a lower one.
	Least bool
	Bound float64
}

//go:embed targets.txt
var list string

// All returns the targets, in the order of the list.
func All() (all []Target, err error) {
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		target, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("targets.txt: %q: %w", line, err)
		}
		all = append(all, target)
	}
	return all, nil
}

func parse(line string) (Target, error) {
	parts := strings.Split(line, " | ")
	if len(parts) != 3 {
		return Target{}, fmt.Errorf("%d parts, want area, measure and target", len(parts))
	}
	words := strings.Fields(parts[2])
	if len(words) < 2 || words[0] != "≤" && words[0] != "≥" {
		return Target{}, fmt.Errorf("the target is %q, want one such as ≤ 30 s", parts[2])
	}
	bound, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return Target{}, fmt.Errorf("the target is %q, want a number after the sign: %w", parts[2], err)
	}
	return Target{Area: parts[0], Measure: parts[1], Text: parts[2], Least: words[0] == "≥", Bound: bound}, nil
}

// Of returns the target of a measure.
func Of(area, measure string) (Target, error) {
	all, err := All()
	if err != nil {
		return Target{}, err
	}
	for _, target := range all {
		if target.Area == area && target.Measure == measure {
			return target, nil
		}
	}
	return Target{}, fmt.Errorf("targets.txt has no line %q of %q", measure, area)
}

// Met reports whether a value is within the target.
func (t Target) Met(value float64) bool {
	if t.Least {
		return value >= t.Bound
	}
	return value <= t.Bound
}
