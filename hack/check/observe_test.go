// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConcurrency(t *testing.T) {
	for text, want := range map[string]bool{
		"\tgo func() {\n": true, "\tgo s.run(ctx)\n": true, "\t\"sync\"\n": true, "import (\n\t\"golang.org/x/sync/errgroup\"\n)": true,
		"\tg.Go(func() error {":   true,
		"\tslots chan struct{}\n": true, "\treturn make(chan int)\n": true, "\tt.Log(\"chan is a word\")\n": false,
		"// go to the end\n": false, "\t\"synctest\"\n": false, "package x\n": false,
	} {
		if got := concurrency.MatchString(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// TestConcurrentByImports: a folder whose parts are concurrent is so as well, if it has tests; what it only uses from elsewhere does not count.
func TestConcurrentByImports(t *testing.T) {
	locks, test := []byte("\t\"sync\"\n"), []byte("func TestX(t *testing.T) {\n\tsingle.Goroutine(t)\n")
	m := inModule(".", []pkg{
		{path: "a", imports: []string{"a/plan", "b"}, tests: test},
		{path: "a/plan", imports: []string{"a/parts/engine"}, tests: test},
		{path: "a/parts/engine", imports: []string{"a/parts/engine/x", "a/parts"}},
		{path: "a/parts/engine/x", code: locks},
		{path: "a/parts", imports: []string{"a/parts/engine"}},
		{path: "ab", imports: []string{"a"}, tests: test},
		{path: "b", code: locks, tests: test},
		{path: "c", imports: []string{"b", "fmt"}, tests: test},
	})
	if want := []string{"a", "b", "a/parts/engine/x"}; !slices.Equal(m.concurrent, want) {
		t.Errorf("%v are concurrent, want %v", m.concurrent, want)
	}
	if want := []string{"TestX"}; !slices.Equal(m.single["a"], want) {
		t.Errorf("single tests of a: %v", m.single["a"])
	}
}

// TestRaceDetectorHasTheHeart: reflection is cut into folders that start goroutines; the tests of the whole run with the race detector, in the stage of
// the gate.
func TestRaceDetectorHasTheHeart(t *testing.T) {
	all, err := readPackages(t.Context(), filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := stages("all", facts{modules: []module{inModule(".", all)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan {
		if s.name == "race product" && strings.Contains(strings.Join(s.commands[0].args, " ")+" ", " liqo.io/liqo/internal/offloading/reflection ") {
			return
		}
	}
	t.Error("internal/offloading/reflection is not in the stage of the race detector")
}
