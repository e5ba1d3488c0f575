// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// modulesWithCode are the modules that hold code of ours, the product first.
// The other component modules only pin versions of programs.
var modulesWithCode = []string{".", "playground", "playground/components/kube", "playground/components/coredns", "test/programs/operator"}

// facts is what the plan depends on.
type facts struct {
	root    bool
	modules []module
	fuzz    []fuzzTarget
	time    string // how long each fuzz target runs, or the soak, as Go writes durations
	seed    string // of the soak; empty: another one each time
	suites  string // comma separated names of long suites; empty: all
	// vulnerabilities is the database of known vulnerabilities: a directory, or vulndb.zip. Empty: there is none.
	vulnerabilities string
	// skips are parts of the reasons for which a test may be skipped in the gate.
	skips []string
}

type module struct {
	dir      string
	packages []string
	// concurrent are those of the packages that start goroutines, hold a lock or use a channel, themselves or through a package below their own folder.
	concurrent []string
	// single are the tests of concurrent packages that the race detector leaves out, by package.
	single map[string][]string
}

// fuzzTarget is one fuzz test of a package.
type fuzzTarget struct{ dir, path, name string }

// stage is one line of the summary: commands that run in order until one fails.
type stage struct {
	name     string
	about    string
	skip     string   // reason not to run it
	last     bool     // not worth starting once something before it or in its lane has failed
	skips    []string // parts of the reasons for which a test may be skipped; nil: any reason will do
	lane     string   // runs at the same time as neighbours of other lanes; empty: alone
	always   bool     // also after an interrupt: it takes away what stages before it have made
	commands []command
	after    []command // run in any case once the first command was started; they take away what the commands have made
}

type command struct {
	dir  string
	args []string
	env  []string // on top of the environment
	// silent: any output is a failure, as with formatters that list files.
	silent  bool
	results results
	// assets: the last line printed is the directory for KUBEBUILDER_ASSETS,
	// which all later commands get.
	assets bool
}

// maxProgram is the limit of the server program, in find's notation for bytes: the size that users are promised.
const maxProgram = "50500000c"

// collectLess is for test programs and the API servers that they start: they live for seconds, and memory is not what limits them.
const collectLess = "GOGC=400"

// hanging ends a package whose tests wait for ever. It judges no speed: the lanes share the processors, and a package that starts twenty API
// servers, alone done in four minutes, has needed more than Go's ten minutes beside them.
const hanging = "30m"

// noVet leaves out the part of go vet that go test runs, for each package and once more with the race detector: lint runs all of it.
const noVet = "-vet=off"

const tools = "-modfile=%shack/tools/go.mod"

func groups() []string {
	return []string{"all", "unit", "race", "lint", "conventions", "vulnerabilities", "e2e", "long", "fuzz", "soak", "bench", "bench-network", "bench-offload"}
}

// stages returns the plan of one group.
func stages(group string, found facts) ([]stage, error) {
	switch group {
	case "all":
		return withSkips(gate(found), found), nil
	case "unit":
		return unit(found, true, " (those that need an API server skip themselves; `make test` runs them)"), nil
	case "race":
		return append([]stage{build(), servers()}, raceDetector(found)...), nil
	case "lint":
		return append([]stage{format()}, lint(found)...), nil
	case "conventions":
		return []stage{conventions(), generated()}, nil
	case "vulnerabilities":
		return []stage{vulnerabilities(found)}, nil
	case "e2e":
		return []stage{build(), journey(found)}, nil
	case "long":
		suites, err := long(found)
		return append([]stage{build()}, suites...), err
	case "fuzz":
		return fuzz(found), nil
	case "soak":
		return []stage{build(), soak(found)}, nil
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
	return stage{name: "format", about: "gofumpt; repair with: hack/go tool -modfile=hack/tools/go.mod gofumpt -w .", commands: []command{{
		args: []string{"go", "tool", fmt.Sprintf(tools, ""), "gofumpt", "-l", "."}, silent: true,
	}}}
}

func conventions() stage {
	// -count=1: the conventions read files that Go's test cache does not see.
	return stage{name: "conventions", about: "of the repository, conventions_test.go and its neighbours", commands: []command{{
		args: []string{"go", "test", "-count=1", "."},
	}}}
}

func generated() stage {
	return stage{name: "generated", about: "is what is generated up to date; repair with: make generate", commands: []command{{
		args: []string{"go", "run", "./hack/generate", "--check"},
	}, {
		args: []string{"go", "run", "./hack/contract", "--check"},
	}}}
}

// build leaves it to the Makefile how programs and image are built, so that tests run what users get.
func build() stage {
	return stage{name: "build", about: "programs and image; no more than 50.5 MB of server program", commands: []command{
		{args: []string{"make", "--no-print-directory", "image", "mover", "traffic", "demo-images", "faults"}},
		// Every role carries the whole program: find prints it if it has grown too large.
		{args: []string{"find", "bin/liqo", "-size", "+" + maxProgram}, silent: true},
	}}
}

// vulnerabilities scans the programs that users get. A run without a database reports that; it asks no server, so that a run depends on this machine only.
func vulnerabilities(found facts) stage {
	s := stage{name: "vulnerabilities", about: "known ones in the Go modules of our programs, by the database " + found.vulnerabilities, commands: []command{
		// Released programs name no functions: in them, each function of an affected package would count.
		{args: []string{"make", "--no-print-directory", "symbols"}},
		{args: []string{"go", "run", "./hack/vulnerabilities", "-db", found.vulnerabilities, "bin/symbols/liqo", "bin/symbols/liqoctl", "bin/symbols/playground"}},
	}}
	if found.vulnerabilities == "" {
		s.skip = "no database: give VULNDB=FILE, for example the vulndb.zip of the Go project"
	}
	return s
}

func servers() stage {
	return stage{name: "servers", about: "API servers for integration tests; minutes when built for the first time", commands: []command{{
		args: []string{"bin/playground", "assets"}, assets: true,
	}}}
}

// unit runs the packages of each module; those that are concurrent only if all is set, as they otherwise run in a stage of their own.
func unit(found facts, all bool, remark string) []stage {
	var plan []stage
	for _, module := range found.modules {
		packages := slices.DeleteFunc(slices.Clone(module.packages), func(path string) bool {
			return apart(path) || !all && slices.Contains(module.concurrent, path)
		})
		if len(packages) == 0 {
			continue
		}
		args := []string{"go", "test", "-timeout", hanging}
		if !all {
			args = append(args, noVet)
		}
		s := stage{
			name: "unit " + label(module.dir), about: "unit tests",
			commands: []command{{dir: module.dir, args: append(args, packages...), env: []string{collectLess}}},
		}
		if command, some := singles(module); some && !all {
			s.commands = append(s.commands, command)
		}
		if module.dir == "." {
			s.about += remark
		}
		plan = append(plan, s)
	}
	return plan
}

// singles runs the tests that the race detector leaves out. They start with single.Goroutine, and so does no other test of the same name in these packages.
func singles(module module) (c command, some bool) {
	packages := slices.Sorted(maps.Keys(module.single))
	var names []string
	for _, path := range packages {
		names = append(names, module.single[path]...)
	}
	slices.Sort(names)
	return command{
		dir:  module.dir,
		args: append([]string{"go", "test", "-timeout", hanging, noVet, "-run", "^(" + strings.Join(slices.Compact(names), "|") + ")$"}, packages...),
		env:  []string{collectLess},
	}, len(packages) > 0
}

// raceDetector runs the packages that start goroutines, hold a lock or use a channel with the race detector, which needs cgo. -p 4: their tests wait
// for API servers more than they compute.
func raceDetector(found facts) []stage {
	var plan []stage
	for _, module := range found.modules {
		packages := slices.DeleteFunc(slices.Clone(module.concurrent), apart)
		if len(packages) == 0 {
			continue
		}
		plan = append(plan, stage{
			name: "race " + label(module.dir), about: "unit and API server tests of concurrent packages with the race detector",
			commands: []command{{
				dir: module.dir, args: append([]string{"go", "test", "-race", "-p", "4", "-timeout", hanging, noVet}, packages...),
				env: []string{"CGO_ENABLED=1", collectLess},
			}},
		})
	}
	return plan
}

// gate is `make test`. First what judges the source, beside the playground's own tests; then the longest stage, the product with the race detector, beside
// the other tests and lint; then the clusters, in two lanes, because they mostly wait. What computes does not run beside them, see ADR 15.
func gate(found facts) (plan []stage) {
	var own, race, others []stage
	for _, s := range slices.Concat(unit(found, false, ""), raceDetector(found), lint(found)) {
		switch s.name {
		case "unit playground", "race playground":
			own = append(own, s)
		case "race product":
			race = append(race, s)
		default:
			others = append(others, s)
		}
	}
	return slices.Concat(
		inLane("source", format(), conventions(), generated()), inLane("playground", append([]stage{build()}, own...)...),
		[]stage{vulnerabilities(found), servers()},
		inLane("race", race...), inLane("others", others...),
		[]stage{up(found)}, clusterLanes(found), []stage{down(found)},
	)
}

// withSkips has the gate fail for a test that is skipped without an accepted reason. As an ordinary user, more is skipped than the list has.
func withSkips(plan []stage, found facts) []stage {
	if !found.root {
		return plan
	}
	for i := range plan {
		plan[i].skips = append([]string{}, found.skips...)
	}
	return plan
}

// inLane has stages run one after the other, at the same time as neighbours in other lanes.
func inLane(lane string, all ...stage) []stage {
	for i := range all {
		all[i].lane = lane
	}
	return all
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

// soak runs for as long as wanted; what comes before and after takes minutes, and is bounded in the test.
func soak(found facts) stage {
	args := []string{"go", "test", "-count=1", "-timeout", "0", "./test/soak", "-v", "-for", found.time, "-namespaces", "20", "-each", "15", "-pace", "12s"}
	if found.seed != "" {
		args = append(args, "-seed", found.seed)
	}
	s := stage{name: "soak", about: "a busy installation for " + found.time + ": random actions of users and random faults", commands: []command{{args: args}}}
	return withRoot(s, found)
}

func label(dir string) string {
	if dir == "." {
		return "product"
	}
	return strings.TrimPrefix(dir, "playground/components/")
}
