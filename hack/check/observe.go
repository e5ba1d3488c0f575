// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// concurrency is in the source of packages that start goroutines, hold a lock or use a channel.
var concurrency = regexp.MustCompile(`(?m)^\s*go (func\b|[\w.]+\()|^\s*(\w+ )?"(sync|sync/atomic|golang\.org/x/sync/errgroup)"$|\.Go\(func|\bchan\b[^"]*$`)

// fuzzTargets finds the names of fuzz tests.
var fuzzTargets = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// usualTime is how long a fuzz target, or the soak, runs if the user names no time. Among the long suites, a target has what all of them can have
// within half an hour.
var usualTime = map[string]string{"long": "30s"}

// singleTests finds the tests that the race detector leaves out, see package single.
var singleTests = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\tsingle\.Goroutine\(t\)$`)

// observe collects what the plan depends on.
func observe(ctx context.Context, group string) (facts, error) {
	found := facts{
		root: os.Geteuid() == 0, time: cmp.Or(os.Getenv("TIME"), usualTime[group], "10m"), seed: os.Getenv("SEED"), suites: os.Getenv("SUITE"),
		vulnerabilities: os.Getenv("VULNDB"),
	}
	accepted, err := os.ReadFile(acceptedPath)
	if err != nil {
		return facts{}, fmt.Errorf("run this in the root of the repository: %w", err)
	}
	if found.skips, err = parseAccepted(string(accepted)); err != nil {
		return facts{}, err
	}
	fuzz := group == "fuzz" || group == "long" && wantsFuzz(found.suites)
	for _, dir := range modulesWithCode {
		all, err := readPackages(ctx, dir)
		if err != nil {
			return facts{}, err
		}
		found.modules = append(found.modules, inModule(dir, all))
		if !fuzz {
			continue
		}
		for _, p := range all {
			for _, name := range fuzzTargets.FindAllSubmatch(p.tests, -1) {
				found.fuzz = append(found.fuzz, fuzzTarget{dir, p.path, string(name[1])})
			}
		}
	}
	return found, nil
}

// pkg is a package of ours: what it imports, and the text of its own files and of its tests.
type pkg struct {
	path        string
	imports     []string
	code, tests []byte
}

// readPackages reads all packages of a module.
func readPackages(ctx context.Context, dir string) (all []pkg, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-e", "-f", `{{.ImportPath}} {{.Dir}} {{join .Imports " "}}`, "./...")
	list.Dir, list.Stderr = dir, os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of module %s: %w", dir, err)
	}
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		p := pkg{path: words[0], imports: words[2:]}
		if p.code, p.tests, err = source(words[1]); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// inModule decides which packages are concurrent, and sorts those with more tests to the start, so that none of them runs alone at the end.
func inModule(dir string, all []pkg) module {
	m, size := module{dir: dir, single: map[string][]string{}}, map[string]int{}
	for _, p := range all {
		m.packages, size[p.path] = append(m.packages, p.path), len(p.tests)
		if !concurrent(p, all) {
			continue
		}
		m.concurrent = append(m.concurrent, p.path)
		for _, name := range singleTests.FindAllSubmatch(p.tests, -1) {
			m.single[p.path] = append(m.single[p.path], string(name[1]))
		}
	}
	for _, all := range [][]string{m.packages, m.concurrent} {
		slices.SortStableFunc(all, func(a, b string) int { return size[b] - size[a] })
	}
	return m
}

// concurrent reports whether a package starts goroutines, holds a lock or uses a channel: itself or, if it has tests, a package below its own folder that it
// imports, directly or not. A domain that is cut into folders keeps the tests of the whole in the folder above.
func concurrent(p pkg, all []pkg) bool {
	if concurrency.Match(p.code) {
		return true
	}
	byPath := map[string]pkg{}
	for _, other := range all {
		byPath[other.path] = other
	}
	seen := map[string]bool{}
	var through func(paths []string) bool
	through = func(paths []string) bool {
		return slices.ContainsFunc(paths, func(path string) bool {
			if seen[path] || !strings.HasPrefix(path, p.path+"/") {
				return false
			}
			seen[path] = true
			return concurrency.Match(byPath[path].code) || through(byPath[path].imports)
		})
	}
	return len(p.tests) > 0 && through(p.imports)
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
