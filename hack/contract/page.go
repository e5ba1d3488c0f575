// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const pageHead = `# See what you can rely on, and the tests that show it

<!-- Made by make contract; change hack/contract/rows.yaml instead. -->

Each row is something that users of the documented system rely on: kinds, fields, commands, flags, labels, values, metrics and behaviours.
Beside it are the tests that show it, with the result of their last run, its day and its commit (+ with changes).
A few tests judge many items by one rule: beside them is what they show, such as "the flag is accepted", instead of "passed".
Where this version differs, the row has the text of [the differences](differences.md) instead, and tests of what is there.

` + "`make contract`" + ` writes this page from ` + "`hack/contract/rows.yaml`" + ` and from the results that ` +
	"`make test`" + `, ` + "`make test-long`" + ` and their parts keep in ` + "`bin/results`" + `.
It refuses a row without a test or a difference, a test that the source does not have, and a difference that no row names; ` +
	"`make verify`" + ` does, as well.
A result is that of its commit, and not of each later change; "not run" means that no recorded run had the test.
A later result takes the place of an earlier one, except that a run that skips more takes the place of nothing.
Tests in ` + "`test/`" + ` run on real clusters.

`

// page is the page of the contract.
func page(sections []section, differences []difference, results map[string]result, source tests) []byte {
	var out bytes.Buffer
	out.WriteString(pageHead)
	out.WriteString(counts(sections, results))
	for _, s := range sections {
		fmt.Fprintf(&out, "\n## %s\n\n| What users rely on | Shown by | Result |\n|---|---|---|\n", s.Title)
		for _, r := range s.Rows {
			shown, ended := cells(r, differences, results)
			fmt.Fprintf(&out, "| %s | %s | %s |\n", strings.TrimSpace(r.Item), strings.Join(shown, "<br>"), strings.Join(ended, "<br>"))
		}
	}
	out.WriteString(suites(source, results))
	return out.Bytes()
}

// suites is a table of the folders with tests on clusters, also of those that no row names.
func suites(source tests, results map[string]result) string {
	var out strings.Builder
	out.WriteString("\n## Tests on clusters, with those that no row names\n\n| Folder | Passed | Not passed in whole | At |\n|---|---|---|---|\n")
	all := source.suites()
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		good, others, at := 0, []string{}, map[string]bool{}
		for _, test := range all[folder] {
			r, ran := results[test]
			if ran {
				at[r.at()] = true
			}
			if r.outcome == passed && r.skipped == 0 {
				good++
				continue
			}
			others = append(others, fmt.Sprintf("`%s`: %s", strings.TrimPrefix(test, folder+"."), outcome(results, test)))
		}
		fmt.Fprintf(
			&out, "| `%s` | %d of %d | %s | %s |\n", folder, good, len(all[folder]), strings.Join(others, "<br>"),
			strings.Join(slices.Sorted(maps.Keys(at)), "<br>"),
		)
	}
	return out.String()
}

// cells are the proofs of a row and their results, line by line.
func cells(r row, differences []difference, results map[string]result) (shown, ended []string) {
	for _, start := range r.Differs {
		// judge has found it.
		if i, err := find(differences, start); err == nil {
			d := differences[i]
			shown = append(shown, d.here)
			ended = append(ended, fmt.Sprintf("[differs](differences.md#%s)", strings.ToLower(strings.ReplaceAll(d.heading, " ", "-"))))
		}
	}
	for _, test := range r.Tests {
		folder, function, subtest, _ := split(test)
		shown = append(shown, fmt.Sprintf("`%s` `%s`", folder, strings.TrimSuffix(function+"/"+subtest, "/")))
		ended = append(ended, outcome(results, test))
	}
	return shown, ended
}

// outcome is how a test ended last, and when. Of a general test it is what the test shows.
func outcome(results map[string]result, test string) string {
	r, ran := results[reported(test)]
	if !ran {
		return "not run"
	}
	text := r.outcome
	if shows := general[test]; shows != "" && r.outcome == passed {
		text = shows
	}
	if r.skipped > 0 && r.outcome != skipped {
		text += fmt.Sprintf(", %d of %d subtests skipped", r.skipped, r.subtests)
	}
	return text + ", " + r.at()
}

func (r result) at() string { return fmt.Sprintf("%s `%s`", r.time.Format(time.DateOnly), r.commit) }

// counts are the numbers of rows and results, and a table of the runs.
func counts(sections []section, results map[string]result) string {
	rows, differ, weak, byOutcome, byRun, seen := 0, 0, 0, map[string]int{}, map[string]int{}, map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rows {
			rows++
			if len(r.Differs) > 0 {
				differ++
			} else if !slices.ContainsFunc(r.Tests, func(test string) bool { return general[test] == "" }) {
				weak++
			}
			for _, test := range r.Tests {
				if !seen[test] {
					byOutcome[cmp.Or(results[reported(test)].outcome, "not run")]++
				}
				seen[test] = true
			}
		}
	}
	for _, r := range results {
		byRun["| "+r.at()+" |"]++
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d rows: %d differ, and of %d only general tests show something. %d tests:", rows, differ, weak, len(seen))
	for _, o := range slices.Sorted(maps.Keys(byOutcome)) {
		fmt.Fprintf(&out, " %d %s,", byOutcome[o], o)
	}
	text := strings.TrimSuffix(out.String(), ",") + ".\n\n| Run | Results |\n|---|---|\n"
	for _, run := range slices.Sorted(maps.Keys(byRun)) {
		text += fmt.Sprintf("%s %d |\n", run, byRun[run])
	}
	return text
}
