// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// modulesWithCode are the modules that hold code of ours, the product first.
// The other component modules only pin versions of programs.
var modulesWithCode = []string{".", "playground", "playground/components/kube", "playground/components/coredns"}

// facts is what the plan depends on.
type facts struct {
	root       bool
	e2e, bench bool // the folder of this name exists in the playground
	modules    []module
}

type module struct {
	dir      string
	packages []string
}

// stage is one line of the summary: commands that run in order until one fails.
type stage struct {
	name     string
	about    string
	skip     string // reason not to run it
	last     bool   // not worth starting once something has failed
	commands []command
}

type command struct {
	dir  string
	args []string
	// silent: any output is a failure, as with formatters that list files.
	silent bool
	// assets: the last line printed is the directory for KUBEBUILDER_ASSETS,
	// which all later commands get.
	assets bool
}

// maxProgram is the limit of the server program, in find's notation for bytes: what users are promised. It was 40 MB
// until offloading came, which has 41.4 MB and brought no heavy dependency.
const maxProgram = "45000000c"

const tools = "-modfile=%shack/tools/go.mod"

func groups() []string {
	return []string{"all", "unit", "lint", "laws", "e2e", "bench", "bench-network", "bench-offload"}
}

// stages returns the plan of one group.
func stages(group string, found facts) ([]stage, error) {
	switch group {
	case "all":
		plan := []stage{format(), laws(), generated(), build(), servers()}
		plan = append(plan, unit(found, "")...)
		plan = append(plan, lint(found)...)
		return append(plan, endToEnd(found)), nil
	case "unit":
		return unit(found, " (those that need an API server skip themselves; `make test` runs them)"), nil
	case "lint":
		return append([]stage{format()}, lint(found)...), nil
	case "laws":
		return []stage{laws(), generated()}, nil
	case "e2e":
		return []stage{build(), endToEnd(found)}, nil
	case "bench":
		return []stage{build(), benchmark(found)}, nil
	case "bench-network":
		return []stage{build(), benchmarkNetwork(found)}, nil
	case "bench-offload":
		return []stage{build(), benchmarkOffload(found)}, nil
	}
	return nil, fmt.Errorf("no group of stages is called %q; there are: %s", group, strings.Join(groups(), " "))
}

func format() stage {
	return stage{name: "format", about: "gofumpt; mend with: hack/go tool -modfile=hack/tools/go.mod gofumpt -w .", commands: []command{{
		args: []string{"go", "tool", fmt.Sprintf(tools, ""), "gofumpt", "-l", "."}, silent: true,
	}}}
}

func laws() stage {
	// -count=1: the laws look at files that Go's test cache does not see.
	return stage{name: "laws", about: "conventions_test.go", commands: []command{{
		args: []string{"go", "test", "-count=1", "."},
	}}}
}

func generated() stage {
	return stage{name: "generated", about: "is what is generated up to date; mend with: make generate", commands: []command{{
		args: []string{"go", "run", "./hack/generate", "--check"},
	}}}
}

// build leaves to the Makefile how programs and image are built, so that tests run what users get.
func build() stage {
	return stage{name: "build", about: "programs and image; no more than 45 MB of server program", commands: []command{
		{args: []string{"make", "--no-print-directory", "image", "traffic", "demo-images", "faults"}},
		// Every role carries the whole program: find prints it if it has grown too large.
		{args: []string{"find", "bin/liqo", "-size", "+" + maxProgram}, silent: true},
	}}
}

func servers() stage {
	return stage{name: "servers", about: "API servers for integration tests; minutes when built for the first time", commands: []command{{
		args: []string{"bin/playground", "assets"}, assets: true,
	}}}
}

func unit(found facts, remark string) []stage {
	var plan []stage
	for _, module := range found.modules {
		packages := slices.DeleteFunc(slices.Clone(module.packages), apart)
		if len(packages) == 0 {
			continue
		}
		s := stage{name: "unit " + label(module.dir), about: "unit tests", commands: []command{{
			dir: module.dir, args: append([]string{"go", "test"}, packages...),
		}}}
		if module.dir == "." {
			s.about += remark
		}
		plan = append(plan, s)
	}
	return plan
}

// apart tells packages that have a stage of their own.
func apart(path string) bool {
	return path == "liqo.io/liqo" || strings.HasPrefix(path, "liqo.io/liqo/playground/e2e") || strings.HasPrefix(path, "liqo.io/liqo/test/") ||
		strings.HasPrefix(path, "liqo.io/liqo/playground/bench")
}

func lint(found facts) []stage {
	var plan []stage
	for _, module := range found.modules {
		up := ""
		if module.dir != "." {
			up = strings.Repeat("../", strings.Count(module.dir, "/")+1)
		}
		plan = append(plan, stage{name: "lint " + label(module.dir), about: "go vet, staticcheck", commands: []command{
			{dir: module.dir, args: []string{"go", "vet", "./..."}},
			{dir: module.dir, args: []string{"go", "tool", fmt.Sprintf(tools, up), "staticcheck", "./..."}},
		}})
	}
	return plan
}

func endToEnd(found facts) stage {
	s := stage{name: "e2e", about: "real clusters: the playground's own tests, then the product on it", last: true, commands: []command{
		{dir: "playground", args: []string{"go", "test", "-count=1", "-timeout", "30m", "./e2e", "-v"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "20m", "./test/quickstart", "-v"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "30m", "./test/offload", "-v"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "40m", "./test/history", "./test/stamp", "./test/bench/offload", "./test/faults", "-v"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "40m", "./test/e2e", "-v"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "30m", "./test/traffic", "./test/network", "-v"}},
	}}
	switch {
	case !found.e2e:
		s.skip = "there is no playground/e2e yet"
	case !found.root:
		s.skip = "real clusters need root"
	}
	return s
}

func benchmark(found facts) stage {
	s := stage{name: "bench", about: "numbers for docs/benchmarks.md", commands: []command{{
		dir: "playground", args: []string{"go", "test", "-run", "^$", "-bench", ".", "-benchtime", "1x", "-count=1", "-timeout", "90m", "./bench", "-v"},
	}}}
	switch {
	case !found.bench:
		s.skip = "there is no playground/bench yet"
	case !found.root:
		s.skip = "real clusters need root"
	}
	return s
}

func benchmarkNetwork(found facts) stage {
	s := stage{name: "bench-network", about: "throughput, latency and memory of the network, for docs/benchmarks.md", commands: []command{{
		args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/bench", "-measure", "-v"},
	}}}
	if !found.root {
		s.skip = "real clusters need root"
	}
	return s
}

func benchmarkOffload(found facts) stage {
	s := stage{name: "bench-offload", about: "time, writes, memory and bytes of offloading, for docs/benchmarks.md", commands: []command{{
		args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/bench/offload", "-measure", "-document", "../../../docs/benchmarks.md", "-v"},
	}}}
	if !found.root {
		s.skip = "real clusters need root"
	}
	return s
}

func label(dir string) string {
	if dir == "." {
		return "product"
	}
	return strings.TrimPrefix(dir, "playground/components/")
}
