// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// section is a part of the documented system.
type section struct {
	Title string
	Rows  []row
}

// row is one thing that users rely on.
type row struct {
	Item string
	// Tests are names such as internal/peering.TestResourceSlice/granted: folder, function and subtest.
	Tests []string
	// Differs are starts of the column Documented in docs/differences.md, long enough to name one row.
	Differs []string
}

// general are tests that judge many items by one rule, and what they show of each of them: less than that it works.
var general = map[string]string{
	"apis.TestSchema":                        "is in the schema",
	"cmd/liqo.TestDocumentedFlags":           "the flag is accepted",
	"cmd/liqo.TestReflectionFlags":           "the flag is accepted",
	"deployments/liqo.TestDocumentedValues":  "the value is accepted",
	"deployments/liqo.TestEveryValueMatters": "the value changes an object",
	"deployments/liqo.TestGolden":            "is rendered",
	"test/bench.TestIdleGateway":             "is measured, not judged",
}

func parseRows(text []byte) ([]section, error) {
	var sections []section
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	return sections, decoder.Decode(&sections)
}

// difference is a row of docs/differences.md.
type difference struct{ heading, documented, here string }

func parseDifferences(text string) (all []difference) {
	heading := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, is := strings.CutPrefix(line, "## "); is {
			heading = title
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Part ") || len(cells) != 4 {
			continue
		}
		all = append(all, difference{heading, strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	return all
}

// find returns the index of the one difference that starts so.
func find(all []difference, start string) (int, error) {
	found := -1
	for i, d := range all {
		switch {
		case !strings.HasPrefix(d.documented, start):
		case found >= 0:
			return 0, fmt.Errorf("more than one row of %s starts with %q in its column Documented; use more of its text", differencesPath, start)
		default:
			found = i
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no row of %s starts with %q in its column Documented; name a test of the row instead, or add the difference", differencesPath, start)
	}
	return found, nil
}

// judge returns what is wrong with the rows: one without proof or with a proof that is not there, and differences that belong to no row.
func judge(sections []section, source tests, differences []difference) (err error) {
	used, seen := map[int]bool{}, map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rows {
			if seen[r.Item] || strings.TrimSpace(r.Item) == "" {
				err = errors.Join(err, fmt.Errorf("%s: an item is empty or there twice: %q", s.Title, r.Item))
			}
			seen[r.Item] = true
			if len(r.Tests) == 0 && len(r.Differs) == 0 {
				err = errors.Join(err, fmt.Errorf("%s: %q has neither a test nor a row of %s", s.Title, r.Item, differencesPath))
			}
			for _, name := range r.Tests {
				if problem := source.lacks(name); problem != "" {
					err = errors.Join(err, fmt.Errorf("%s: %q: %s: %s", s.Title, r.Item, name, problem))
				}
			}
			for _, start := range r.Differs {
				i, problem := find(differences, start)
				if problem != nil {
					err = errors.Join(err, fmt.Errorf("%s: %q: %w", s.Title, r.Item, problem))
					continue
				}
				used[i] = true
			}
		}
	}
	for i, d := range differences {
		if !used[i] {
			err = errors.Join(err, fmt.Errorf("no row of %s names this difference: %q", rowsPath, d.documented))
		}
	}
	return err
}

// name is how rows name tests.
var name = regexp.MustCompile(`^(.*)\.((?:Test|Fuzz)\w+)(?:/(.+))?$`)

// split returns the parts of the name of a test.
func split(full string) (folder, function, subtest string, ok bool) {
	match := name.FindStringSubmatch(full)
	if match == nil {
		return "", "", "", false
	}
	return match[1], match[2], match[3], true
}
