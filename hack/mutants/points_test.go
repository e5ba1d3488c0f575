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
		name := p.where + ": " + p.what
		found = append(found, name)
		if got := run(i + 1); got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
	if len(found) != len(want) || len(slices.Compact(slices.Sorted(slices.Values(found)))) != len(want) {
		t.Errorf("changes %q", found)
	}
}
