// SPDX-License-Identifier: Apache-2.0

// Command check runs the stages of `make test` one after the other, reports how
// long each took, and ends with the output of what failed.
//
// stages.go and suites.go decide which stages there are and what each runs, as pure
// functions; run.go runs them; progress.go remembers which long suites have passed,
// so that an interrupted run can be continued; events.go keeps the results of tests in bin/results. It must not know what the tests test.
// Its proof is check_test.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := check(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, one of: %s", strings.Join(groups(), " "))
	}
	group := args[0]
	found, err := observe(ctx, group)
	if err != nil {
		return err
	}
	plan, err := stages(group, found)
	if err != nil {
		return err
	}
	commit, noCommit := head(ctx, ".")
	record := func(result) error { return nil }
	if group == "long" {
		if noCommit != nil {
			return noCommit
		}
		p, err := readProgress(filepath.Join("bin", "test-long"), commit)
		if err != nil {
			return err
		}
		plan = p.remaining(plan)
		record = p.record
	}
	start := time.Now()
	ended := run(ctx, withResults(plan, commit), os.Stdout, record)
	fmt.Print(summary(ended, time.Since(start)))
	if failed(ended) {
		return errors.New("not all stages passed")
	}
	return ctx.Err()
}

// concurrency is in the source of packages that start goroutines, hold a lock or use a channel.
var concurrency = regexp.MustCompile(`(?m)^\s*go (func\b|[\w.]+\()|^\s*(\w+ )?"(sync|sync/atomic|golang\.org/x/sync/errgroup)"$|\.Go\(func|\bchan\b[^"]*$`)

// fuzzTargets finds the names of fuzz tests.
var fuzzTargets = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// usualTime is how long a fuzz target, or the soak, runs if the user names no time. Among the long suites, a target has what all of them can have within half an hour.
var usualTime = map[string]string{"long": "30s"}

// singleTests finds the tests that the race detector leaves out, see package single.
var singleTests = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\tsingle\.Goroutine\(t\)$`)

// observe collects what the plan depends on.
func observe(ctx context.Context, group string) (facts, error) {
	found := facts{
		root: os.Geteuid() == 0, time: cmp.Or(os.Getenv("TIME"), usualTime[group], "10m"), seed: os.Getenv("SEED"), suites: os.Getenv("SUITE"),
		vulnerabilities: os.Getenv("VULNDB"),
	}
	fuzz := group == "fuzz" || group == "long" && wantsFuzz(found.suites)
	for _, dir := range modulesWithCode {
		list := exec.CommandContext(ctx, "go", "list", "-e", "-f", "{{.ImportPath}} {{.Dir}}", "./...")
		list.Dir, list.Stderr = dir, os.Stderr
		output, err := list.Output()
		if err != nil {
			return facts{}, fmt.Errorf("list packages of module %s: %w", dir, err)
		}
		module, size := module{dir: dir, single: map[string][]string{}}, map[string]int{}
		for line := range strings.Lines(string(output)) {
			path, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
			code, tests, err := source(folder)
			if err != nil {
				return facts{}, err
			}
			module.packages, size[path] = append(module.packages, path), len(tests)
			if concurrency.Match(code) {
				module.concurrent = append(module.concurrent, path)
				for _, name := range singleTests.FindAllSubmatch(tests, -1) {
					module.single[path] = append(module.single[path], string(name[1]))
				}
			}
			if !fuzz {
				continue
			}
			for _, name := range fuzzTargets.FindAllSubmatch(tests, -1) {
				found.fuzz = append(found.fuzz, fuzzTarget{dir, path, string(name[1])})
			}
		}
		// Packages with more tests start earlier, so that none of them runs alone at the end.
		for _, all := range [][]string{module.packages, module.concurrent} {
			slices.SortStableFunc(all, func(a, b string) int { return size[b] - size[a] })
		}
		found.modules = append(found.modules, module)
	}
	return found, nil
}

// source returns the Go files of a folder, one after the other: the product's, and those of tests.
func source(folder string) (code, tests []byte, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasSuffix(file, "_test.go") {
			tests = append(tests, text...)
		} else {
			code = append(code, text...)
		}
	}
	return code, tests, nil
}

// result is the outcome of one stage.
type result struct {
	stage   stage
	took    time.Duration
	skipped string // reason, empty if it ran
	err     error
	output  string
}

func failed(results []result) bool {
	for _, r := range results {
		if r.err != nil {
			return true
		}
	}
	return false
}
