// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const someSkips = `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:7: NOT RUN: it takes minutes; use -long\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestB/zsh","Output":"        b_test.go:9: this machine has no zsh\n"}
{"Action":"skip","Package":"a","Test":"TestB/zsh"}
{"Action":"skip","Package":"a","Test":"TestC"}
{"Action":"pass","Package":"a","Test":"TestB"}
{"Action":"output","Package":"a","Test":"TestD","Output":"    d_test.go:1: why\n"}
{"Action":"fail","Package":"a","Test":"TestD"}
{"Action":"fail","Package":"a"}
`

// TestSkips: a stage names what it has skipped, and the gate fails for a reason that is not accepted.
func TestSkips(t *testing.T) {
	t.Chdir(t.TempDir())
	run := func(skips []string) result {
		t.Helper()
		tool := filepath.Join(t.TempDir(), "go")
		if err := os.WriteFile(tool, []byte("#!/bin/sh\ncat <<'E'\n"+someSkips+"E\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		env := os.Environ()
		return runStage(t.Context(), stage{name: "unit", skips: skips, commands: []command{
			{args: []string{tool, "test", "./a"}, results: results{path: filepath.Join("bin", "results", "x.json"), commit: "0123"}},
		}}, false, &env, &printer{out: &out})
	}
	lines := "1 passed, 1 failed, 3 skipped\n" + strings.Repeat(" ", 30) + "1 skipped: NOT RUN: it takes minutes; use -long\n" +
		strings.Repeat(" ", 30) + "1 skipped: no reason given\n" + strings.Repeat(" ", 30) + "1 skipped: this machine has no zsh\n"
	for _, row := range []struct {
		skips []string
		want  string // the error
	}{
		{nil, ""},
		{[]string{"-long", "this machine has no", "no reason"}, ""},
		{[]string{"-long"}, "hack/skips.txt does not have: no reason given; this machine has no zsh"},
		{[]string{}, "does not have: NOT RUN: it takes minutes; use -long; no reason given; this machine has no zsh"},
	} {
		r := run(row.skips)
		if row.want == "" && r.err != nil || row.want != "" && (r.err == nil || !strings.HasSuffix(r.err.Error(), row.want)) {
			t.Errorf("accepted %q: %v, want %q", row.skips, r.err, row.want)
		}
		if text := summary([]result{r}, 0); !strings.Contains(text, lines) {
			t.Errorf("the summary lacks %q:\n%s", lines, text)
		}
	}
}

// TestAccepted: the list of the repository can be read; only the gate as root asks for it.
func TestAccepted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", acceptedPath))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := parseAccepted(string(text))
	if err != nil || !slices.Contains(accepted, "-long") {
		t.Fatalf("%q, %v", accepted, err)
	}
	for _, missing := range []string{
		"NOT RUN: network namespaces need root", "NOT RUN: KUBEBUILDER_ASSETS is not set, so there is no API server to test against",
		"no reason given",
	} {
		if refused := (&tally{reasons: map[string]int{missing: 1}}).refused(accepted); len(refused) != 1 {
			t.Errorf("%q is accepted", missing)
		}
	}
	if _, err := parseAccepted("a reason without a reason"); err == nil {
		t.Error("a line without a reason was accepted")
	}
	for root, want := range map[bool]bool{true: true, false: false} {
		for group, asks := range map[string]bool{"all": want, "unit": false, "long": false} {
			plan, err := stages(group, facts{root: root, skips: accepted, modules: []module{{dir: ".", packages: []string{"a"}}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range plan {
				if (s.skips != nil) != asks {
					t.Errorf("group %s, root %t, stage %s: %q", group, root, s.name, s.skips)
				}
			}
		}
	}
}

// TestWithoutClusters: the last line of a run without root is what it does not show.
func TestWithoutClusters(t *testing.T) {
	passed := result{stage: stage{name: "unit"}}
	end := summary([]result{passed, {stage: stage{name: "journey", about: "two real clusters", skip: needsRoot}, skipped: needsRoot}}, 0)
	const want = "\nNO CLUSTER WAS USED, because real clusters need root. This run shows nothing of: journey (two real clusters).\n"
	if !strings.HasSuffix(end, want) {
		t.Errorf("the run ends with %q, want %q", end, want)
	}
	if end := summary([]result{passed}, 0); strings.Contains(end, "CLUSTER") {
		t.Errorf("a run with all that it has ends with %q", end)
	}
}
