// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// module is what Go puts before the folder of a package.
const module = "liqo.io/liqo/"

const resultsHead = `# The last results of the tests that rows.yaml names, and of all tests on clusters.
# Written by make contract from bin/results, where hack/check keeps what go test reported.
# outcome  time  commit (+ with changes)  test  subtests skipped/all
`

// outcomes are the actions of events that end a test.
var outcomes = map[string]string{"pass": passed, "fail": failed, "skip": skipped}

const (
	passed  = "passed"
	failed  = "FAILED"
	skipped = "skipped"
)

// result is how a test ended when it ran last.
type result struct {
	outcome string
	time    time.Time
	commit  string
	// skipped are those of the subtests that were skipped: of the innermost ones, which is where the work is done.
	skipped, subtests int
}

// event is a line of a file of results: the commit first, then what "go test -json" prints.
type event struct {
	Commit  string `json:",omitempty"`
	Time    time.Time
	Action  string
	Package string
	Test    string
}

// ended is how a test has ended.
type ended struct {
	test string
	result
}

// parseEvents returns the commit of a file of results, and the ends of tests in it.
func parseEvents(text []byte) (commit string, ends []ended, err error) {
	for line := range bytes.Lines(text) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // what a build prints
		}
		if e.Commit != "" {
			commit = e.Commit
		}
		if e.Test == "" || outcomes[e.Action] == "" {
			continue
		}
		if commit == "" {
			return "", nil, errors.New(`the first line must be the commit that was tested: {"Commit":"..."}`)
		}
		ends = append(ends, ended{
			strings.TrimPrefix(e.Package, module) + "." + e.Test,
			result{outcome: outcomes[e.Action], time: e.Time.UTC().Truncate(time.Second), commit: short(commit)},
		})
	}
	return commit, withSubtests(ends), nil
}

// withSubtests counts the innermost subtests of each test. A test all of whose subtests were skipped was skipped, whatever go test reports.
func withSubtests(ends []ended) []ended {
	index, inner := map[string]int{}, map[string]bool{}
	for i, e := range ends {
		index[e.test], inner[e.test] = i, true
	}
	outer := func(test string) (all []int) {
		for end := strings.LastIndexByte(test, '/'); end > strings.LastIndexByte(test, '.'); end = strings.LastIndexByte(test[:end], '/') {
			if i, ok := index[test[:end]]; ok {
				all = append(all, i)
			}
		}
		return all
	}
	for _, e := range ends {
		for _, i := range outer(e.test) {
			inner[ends[i].test] = false
		}
	}
	for test := range inner {
		if !inner[test] {
			continue
		}
		for _, i := range outer(test) {
			ends[i].subtests++
			if ends[index[test]].outcome == skipped {
				ends[i].skipped++
			}
		}
	}
	for i := range ends {
		if e := &ends[i]; e.outcome == passed && e.subtests > 0 && e.skipped == e.subtests {
			e.outcome = skipped
		}
	}
	return ends
}

// merge takes over what happened.
func merge(results map[string]result, ends []ended) {
	for _, e := range ends {
		if old, ran := results[e.test]; !ran || e.replaces(old) {
			results[e.test] = e.result
		}
	}
}

// replaces reports whether a result takes the place of another one. Files of runs may be old, and the gate skips what only long suites run: what
// ran less shows less, and in particular not that what failed before is repaired.
func (r result) replaces(old result) bool {
	switch {
	case r.time.Before(old.time):
		return false
	case r.outcome == failed || old.outcome == skipped:
		return true
	}
	return r.outcome != skipped && r.skipped <= old.skipped
}

// short is a commit in a few characters, with a mark if files differed from it.
func short(commit string) string {
	hash, changed := strings.CutSuffix(commit, "-dirty")
	hash = hash[:min(len(hash), 8)]
	if changed {
		hash += "+"
	}
	return hash
}

// reported is the name of a test in its results: Go replaces the spaces of a subtest.
func reported(test string) string { return strings.ReplaceAll(test, " ", "_") }

// keep drops results of tests that no row names, and that the source has not in a suite.
func keep(results map[string]result, sections []section, source tests) {
	wanted := map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rows {
			for _, test := range r.Tests {
				wanted[reported(test)] = true
			}
		}
	}
	for _, all := range source.suites() {
		for _, test := range all {
			wanted[test] = true
		}
	}
	maps.DeleteFunc(results, func(test string, _ result) bool { return !wanted[test] })
}

func formatResults(results map[string]result) []byte {
	var out bytes.Buffer
	out.WriteString(resultsHead)
	for _, test := range slices.Sorted(maps.Keys(results)) {
		r := results[test]
		fmt.Fprint(&out, r.outcome, " ", r.time.Format(time.RFC3339), " ", r.commit, " ", test)
		if r.subtests > 0 {
			fmt.Fprintf(&out, " %d/%d", r.skipped, r.subtests)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func parseResults(text []byte) (map[string]result, error) {
	results := map[string]result{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 4 && len(words) != 5 {
			return nil, fmt.Errorf("want outcome, time, commit, test and perhaps subtests, found %q", line)
		}
		at, err := time.Parse(time.RFC3339, words[1])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		r := result{outcome: words[0], time: at, commit: words[2]}
		if len(words) == 5 {
			if _, err := fmt.Sscanf(words[4], "%d/%d", &r.skipped, &r.subtests); err != nil {
				return nil, fmt.Errorf("%q: want skipped/all: %w", line, err)
			}
		}
		results[words[3]] = r
	}
	return results, nil
}
