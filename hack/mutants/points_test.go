// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const example = `package main

import "fmt"

const fixed = 1 == 1

func decide(a, b int, open bool) string {
	if open && a < b || a == 7 {
		return "yes"
	}
	switch {
	case !open:
		return "closed"
	case a >= b: // a*b % 3
		return "more"
	}
	return "no"
}

func main() {
	for _, open := range []bool{true, false} {
		for _, a := range []int{1, 2, 3, 7} {
			fmt.Print(decide(a, 2, open), " ")
		}
	}
}
`

// TestMutate: each change alters what the program does, exactly one at a time, and none if none is chosen.
func TestMutate(t *testing.T) {
	points, text, err := mutate("main.go", example, 1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range map[string]string{"main.go": text, "chooses.go": fmt.Sprintf(chooses, "main"), "go.mod": "module x\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "x", ".")
	build.Dir = folder
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, output, text)
	}
	run := func(number int) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "x"))
		cmd.Env = []string{fmt.Sprintf("%s=%d", variable, number)}
		output, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(output))
	}
	if got := run(0); got != "yes more more yes closed closed closed yes" {
		t.Errorf("without a change: %s", got)
	}
	want := map[string]string{
		"main.go:8: `open && a < b` is left out of the condition": "no more more yes closed closed closed yes",
		"main.go:8: `a == 7` is left out of the condition":        "yes more more more closed closed closed closed",
		"main.go:8: `open` is left out of the condition":          "yes more more yes yes closed closed yes",
		"main.go:8: `a < b` is left out of the condition":         "yes yes yes yes closed closed closed yes",
		"main.go:8: `a < b` also holds for equal sides":           "yes yes more yes closed closed closed yes",
		"main.go:8: `a == 7` is reversed":                         "yes yes yes more yes yes yes closed",
		"main.go:12: `!open` is reversed":                         "yes closed closed yes no more more yes",
		"main.go:14: `a >= b` does not hold for equal sides":      "yes no more yes closed closed closed yes",
	}
	var found []string
	for i, p := range points {
		name := p.where() + ": " + p.what
		found = append(found, name)
		if got := run(i + 1); got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
	if len(found) != len(want) || len(slices.Compact(slices.Sorted(slices.Values(found)))) != len(want) {
		t.Errorf("changes %q", found)
	}
}

// TestEquivalent: a change is listed by its file and text, with a reason, and exists.
func TestEquivalent(t *testing.T) {
	points, _, err := mutate("pkg/main.go", example, 1)
	if err != nil {
		t.Fatal(err)
	}
	const good = "pkg/main.go: `a < b` also holds for equal sides # never equal"
	for text, wrong := range map[string]string{
		"# a comment\n\n" + good:                 "",
		"pkg/main.go: `a < b` is reversed # x":   "pkg/main.go: `a < b` is reversed", // there is another change of it
		"other/main.go: `a < b` is reversed # x": "",                                 // of another package, which is not tried now
	} {
		same, err := parseEquivalent(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := strings.Join(stale("./pkg", points, same), ", "); got != wrong {
			t.Errorf("%s: stale %q, want %q", text, got, wrong)
		}
	}
	for _, text := range []string{"pkg/main.go: `a < b` is reversed", "pkg/main.go: `a < b` is reversed # ", good + "\n" + good} {
		if same, err := parseEquivalent(text); err == nil {
			t.Errorf("%q is accepted: %v", text, same)
		}
	}
	if _, err := parseEquivalent(equivalent); err != nil {
		t.Error(err)
	}
}

// TestSurvivors: the lines of an earlier run name changes, wherever they are by now.
func TestSurvivors(t *testing.T) {
	got := survivors("pkg/a.go:12: no test fails if `a < b` is reversed\n\npkg   1 of 2 changes noticed\n")
	if p := (point{file: "pkg/a.go", line: 15, what: "`a < b` is reversed"}); len(got) != 1 || !got[p.name()] {
		t.Errorf("%v", got)
	}
}
