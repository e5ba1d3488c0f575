// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const pageHead = `# See what you can rely on, and the tests that show it

<!-- Made by make contract; change hack/contract/rows.yaml instead. -->

Each row is something that users of the documented system rely on: kinds, fields, commands, flags, labels, values, metrics and behaviours.
Beside it are the tests that show it, with the result of their last run.
Where this version differs, the row has the text of [the differences](differences.md) instead, and tests of what is there.

` + "`make contract`" + ` writes this page from ` + "`hack/contract/rows.yaml`" + ` and from the results that ` + "`make test`" + `, ` + "`make test-long`" + ` and their parts keep in ` + "`bin/results`" + `.
It refuses a row without a test or a difference, a test that the source does not have, and a difference that no row names; ` + "`make verify`" + ` does, as well.
Results are those of the commits in the table, and not of each later change; "not run" means that no recorded run had the test.
Tests in ` + "`test/`" + ` run on real clusters.

`

// page is the page of the contract.
func page(sections []section, differences []difference, results map[string]result) []byte {
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
	return out.Bytes()
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

func outcome(results map[string]result, test string) string {
	if r, ran := results[reported(test)]; ran {
		return r.outcome
	}
	return "not run"
}

// counts are tables of how many rows and results there are, and of the commits that were tested.
func counts(sections []section, results map[string]result) string {
	rows, differ, byOutcome, byRun, seen := 0, 0, map[string]int{}, map[string]int{}, map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rows {
			rows++
			if len(r.Differs) > 0 {
				differ++
			}
			for _, test := range r.Tests {
				if !seen[test] {
					byOutcome[outcome(results, test)]++
				}
				seen[test] = true
			}
		}
	}
	for _, r := range results {
		byRun[fmt.Sprintf("| %s | `%s` |", r.date, r.commit)]++
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d rows, of which %d differ; %d tests:", rows, differ, len(seen))
	for _, o := range slices.Sorted(maps.Keys(byOutcome)) {
		fmt.Fprintf(&out, " %d %s,", byOutcome[o], o)
	}
	text := strings.TrimSuffix(out.String(), ",") + ".\n\n| Run | Commit (+ with changes) | Results |\n|---|---|---|\n"
	for _, run := range slices.Sorted(maps.Keys(byRun)) {
		text += fmt.Sprintf("%s %d |\n", run, byRun[run])
	}
	return text
}
