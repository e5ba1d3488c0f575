// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// acceptedPath lists why a test may be skipped in the gate.
const acceptedPath = "hack/skips.txt"

// tally counts the tests of a stage, subtests as well, and has the reasons of those that were skipped.
type tally struct {
	passed, failed, skipped int
	reasons                 map[string]int
	printed                 map[string]string // what a test that runs has printed last
}

// logLine is what a test prints with t.Log and t.Skip.
var logLine = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: (.*)`)

// event takes an event of a test over.
func (t *tally) event(action, test, output string) {
	switch action {
	case "output":
		if match := logLine.FindStringSubmatch(output); match != nil {
			if t.printed == nil {
				t.printed = map[string]string{}
			}
			t.printed[test] = match[1]
		}
		return
	case "pass":
		t.passed++
	case "fail":
		t.failed++
	case "skip":
		t.skipped++
		reason := t.printed[test]
		if reason == "" {
			reason = "no reason given"
		}
		if t.reasons == nil {
			t.reasons = map[string]int{}
		}
		t.reasons[reason]++
	default:
		return
	}
	delete(t.printed, test)
}

// String is empty if no tests have run.
func (t *tally) String() string {
	text := ""
	for _, one := range []struct {
		number int
		what   string
	}{{t.passed, "passed"}, {t.failed, "failed"}, {t.skipped, "skipped"}} {
		if one.number > 0 {
			text += fmt.Sprintf(", %d %s", one.number, one.what)
		}
	}
	return strings.TrimPrefix(text, ", ")
}

// refused are the reasons that are not accepted.
func (t *tally) refused(accepted []string) (all []string) {
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		if !slices.ContainsFunc(accepted, func(part string) bool { return strings.Contains(reason, part) }) {
			all = append(all, reason)
		}
	}
	return all
}

// parseAccepted reads parts of accepted reasons, each of which is followed by why it is.
func parseAccepted(text string) (all []string, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, why, _ := strings.Cut(line, " | ")
		if part = strings.TrimSpace(part); part == "" || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s: want a part of a reason, \" | \" and why it is accepted, found %q", acceptedPath, line)
		}
		all = append(all, part)
	}
	return all, nil
}
