// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	bench "liqo.io/liqo/test/bench/targets"
)

// TestIndex: the index of the documentation links every page but single decisions.
func TestIndex(t *testing.T) {
	const index = "docs/README.md"
	var linked []string
	for _, match := range link.FindAllStringSubmatch(string(read(t, index)), -1) {
		target, _, _ := strings.Cut(match[1], "#")
		linked = append(linked, path.Join(path.Dir(index), target))
	}
	for _, file := range documents(t) {
		if strings.HasPrefix(file, "docs/") && file != index && path.Dir(file) != "docs/adr" && !slices.Contains(linked, file) {
			t.Errorf("%s does not link %s; add a row by the task of its reader", index, file)
		}
	}
}

// mostWords are the words that pages for users may have; what grows beyond belongs to docs/internals or docs/reference.
var mostWords = map[string]int{
	"docs/README.md": 600, "docs/benchmarks.md": 1500, "docs/network.md": 4000, "docs/offloading.md": 5000, "docs/own-clusters.md": 1600,
	"docs/peering.md": 2200, "docs/providers.md": 4500,
}

func TestPagesAreShort(t *testing.T) {
	for file, most := range mostWords {
		if words := len(strings.Fields(string(read(t, file)))); words > most {
			t.Errorf("%s has %d words, at most %d are useful to a reader: move rules to docs/internals, lists to docs/reference, "+
				"or delete what stands elsewhere", file, words, most)
		}
	}
}

var targetRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([≤≥] [^|]+) \| ([^|]+) \|$`)

// TestTargets: docs/benchmarks.md shows each target that the benchmarks judge by, and no other one.
func TestTargets(t *testing.T) {
	const page = "docs/benchmarks.md"
	all, err := bench.All()
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, match := range targetRow.FindAllStringSubmatch(string(read(t, page)), -1) {
		shown = append(shown, match[1]+" | "+match[2])
	}
	for _, target := range all {
		row := target.Measure + " | " + target.Text
		at := slices.Index(shown, row)
		if at < 0 {
			t.Errorf("%s does not have the row: | %s |", page, row)
			continue
		}
		shown = slices.Delete(shown, at, at+1)
	}
	if len(shown) > 0 {
		t.Errorf("%s has targets that test/bench/targets/targets.txt lacks: %q", page, shown)
	}
}

var (
	liqoctlCall    = regexp.MustCompile(`(?:^|[\s(])liqoctl ([^#;&|)]+)`)
	liqoctlSection = regexp.MustCompile(`(?m)^## (liqoctl.*)$`)
	firstLower     = regexp.MustCompile(`^[a-z]`)
	liqoctlFlag    = regexp.MustCompile("(?m)^\\| `(?:-\\w, )?(--[a-z-]+)")
)

// TestDocumentsKnowLiqoctl: commands and flags of `liqoctl` in documents are those of the generated reference.
func TestDocumentsKnowLiqoctl(t *testing.T) {
	const reference = "docs/reference/liqoctl.md"
	text := string(read(t, reference))
	flags := map[string][]string{} // by command
	sections := liqoctlSection.FindAllStringSubmatchIndex(text, -1)
	for i, at := range sections {
		end := len(text)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		name := text[at[2]:at[3]]
		flags[name] = nil
		for _, match := range liqoctlFlag.FindAllStringSubmatch(text[at[0]:end], -1) {
			flags[name] = append(flags[name], match[1])
		}
	}
	for _, file := range documents(t) {
		if strings.HasPrefix(file, "docs/adr/") || slices.Contains([]string{reference, "docs/differences.md", "docs/contract.md"}, file) {
			continue // decisions, and what others document
		}
		for _, snippet := range snippets(string(read(t, file))) {
			for _, call := range liqoctlCall.FindAllStringSubmatch(snippet, -1) {
				if problem := unknown(flags, strings.Fields(call[1])); problem != "" {
					t.Errorf("%s: `liqoctl %s`: %s, see %s", file, strings.TrimSpace(call[1]), problem, reference)
				}
			}
		}
	}
}

// unknown is what commands, with their flags, do not have of the words after `liqoctl`.
func unknown(flags map[string][]string, words []string) string {
	command := "liqoctl"
	known := slices.Clone(flags[command])
	for i, word := range words {
		name, _, _ := strings.Cut(word, "=")
		switch _, below := flags[command+" "+word]; {
		case below:
			command += " " + word
			known = append(known, flags[command]...)
		case strings.HasPrefix(word, "--") && !slices.Contains(append(known, "--help"), name):
			return "no flag " + name
		case command == "liqoctl" && firstLower.MatchString(word) && (i == 0 || !strings.HasPrefix(words[i-1], "-")):
			return "no command " + word
		}
	}
	return ""
}

func TestUnknownOfLiqoctl(t *testing.T) {
	flags := map[string][]string{"liqoctl": {"--context"}, "liqoctl peer": {"--force"}, "liqoctl peer in-band": {"--remote-context"}}
	for text, want := range map[string]string{
		"peer in-band milan --remote-context b --context=a --force": "",
		"peer milan --remote-context b":                             "no flag --remote-context",
		"pear milan":                                                "no command pear",
		"--context a peer milan --help":                             "",
	} {
		if got := unknown(flags, strings.Fields(text)); got != want {
			t.Errorf("liqoctl %s: %q, want %q", text, got, want)
		}
	}
}
