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

const resultsHead = `# The last results of the tests that rows.yaml names. Written by make contract from bin/results, where hack/check keeps what go test reported.
# outcome  date  commit (+ with changes)  test
`

// result is how a test ended when it ran last. A test that was skipped keeps the result of the run before.
type result struct{ outcome, date, commit string }

// event is a line of a file of results: the commit first, then what "go test -json" prints.
type event struct {
	Commit  string `json:",omitempty"`
	Time    time.Time
	Action  string
	Package string
	Test    string
}

// parseEvents returns the ends of tests in a file, each with the commit of the file.
func parseEvents(text []byte) (ends []event, err error) {
	commit := ""
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
			return nil, errors.New(`the first line must be the commit that was tested: {"Commit":"..."}`)
		}
		e.Commit = commit
		ends = append(ends, e)
	}
	return ends, nil
}

// outcomes are the actions of events that end a test.
var outcomes = map[string]string{"pass": "passed", "fail": "FAILED", "skip": "skipped"}

// merge takes over what happened, the earliest first. Results of a later day stay: files of runs may be old.
func merge(results map[string]result, events []event) {
	for _, e := range events {
		test := strings.TrimPrefix(e.Package, module) + "." + e.Test
		now := result{outcomes[e.Action], e.Time.UTC().Format(time.DateOnly), short(e.Commit)}
		old, ran := results[test]
		// The gate skips the tests that only long suites run.
		if ran && (old.date > now.date || e.Action == "skip" && old.outcome != now.outcome) {
			continue
		}
		results[test] = now
	}
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

// keepNamed drops results that no row names.
func keepNamed(results map[string]result, sections []section) {
	named := map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rows {
			for _, test := range r.Tests {
				named[reported(test)] = true
			}
		}
	}
	maps.DeleteFunc(results, func(test string, _ result) bool { return !named[test] })
}

func formatResults(results map[string]result) []byte {
	var out bytes.Buffer
	out.WriteString(resultsHead)
	for _, test := range slices.Sorted(maps.Keys(results)) {
		r := results[test]
		fmt.Fprintln(&out, r.outcome, r.date, r.commit, test)
	}
	return out.Bytes()
}

func parseResults(text []byte) (map[string]result, error) {
	results := map[string]result{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case len(words) != 4:
			return nil, fmt.Errorf("want outcome, date, commit and test, found %q", line)
		default:
			results[words[3]] = result{words[0], words[1], words[2]}
		}
	}
	return results, nil
}
