// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// suites are the long tests on real clusters, each of which brings its clusters up and takes them away.
var suites = []stage{
	{name: "playground", about: "the playground's own tests", commands: []command{
		{dir: "playground", args: []string{"go", "test", "-count=1", "-timeout", "60m", "./e2e", "-v"}},
	}},
	{name: "quickstart", about: "the README's first command, from nothing to nothing", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "40m", "./test/quickstart", "-v"}},
	}},
	{name: "e2e", about: "peering, with every fault at every step, dead providers, rights used against rights granted", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "90m", "./test/e2e", "-v", "-long"}},
	}},
	{name: "offload", about: "every field of every kind that is reflected, settings included", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "120m", "./test/offload", "-v", "-long"}},
	}},
	{name: "field", about: "programs as people have them, once at home and once at the provider, with the same answer from both", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/field", "-v", "-long"}},
	}},
	{
		name:  "programs",
		about: "operators, Prometheus, databases and ingress controllers as their users run them, with replicas in both clusters",
		commands: []command{
			{args: []string{"make", "--no-print-directory", "mover", "program-images"}},
			{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/programs", "-v"}},
			{args: []string{
				"go", "test", "-count=1", "-timeout", "60m", "./test/programs", "-v", "-scenario", "stateful", "-run",
				"TestPrometheus|TestTraefik|TestGalera",
			}},
		},
	},
	{name: "faults", about: "200 offloaded pods while processes, servers, nodes and links fail, for minutes", commands: []command{
		{args: []string{"go", "test", "-count=1", "./test/bench/offload"}},
		{args: []string{"go", "test", "-count=1", "-timeout", "90m", "./test/faults", "-v", "-long"}},
	}},
	{name: "network", about: "three clusters with the same addresses, one and two gateways, every fault", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "90m", "./test/network", "-v", "-long"}},
	}},
	{
		name:  "several",
		about: "a cluster with several peers: an application in three clusters, of which one fails or leaves; a ring; four clusters, each of which uses the others",
		commands: []command{
			{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/several", "-v", "-long"}},
		},
	},
	{
		name: "soak", about: "six namespaces in three providers, random actions of users and random faults; `make soak` is its long form, with 20",
		commands: []command{
			{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/soak", "-v"}},
		},
	},
	{name: "tenants", about: "one consumer tries to create 100,000 objects while another one works", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/tenants", "-v"}},
	}},
	{
		name:  "stateful",
		about: "a database of two clusters, by the commands of its guide; a cluster is lost and returns without a lost row, a volume moves to a third one",
		commands: []command{
			{args: []string{"make", "--no-print-directory", "mover", "stateful-images"}},
			{args: []string{"go", "test", "-count=1", "-timeout", "40m", "./test/stateful", "-v", "-long"}},
		},
	},
	{name: "examples", about: "the guides of examples/ on their clusters, from the first command to the last one", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/examples", "-v"}},
	}},
	{
		name:  "install",
		about: "every way to install, on clusters whose networks do not overlap: Helm, other namespaces, other networks, no addresses",
		commands: []command{
			{args: []string{"make", "--no-print-directory", "helm"}},
			{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/install", "-v"}},
		},
	},
	{name: "release", about: "two builds of one release, the second without Go's build cache: the same bytes", commands: []command{
		{args: []string{"go", "test", "-count=1", "-timeout", "60m", "./hack/release", "-v", "-long"}},
	}},
}

// fuzzSuite is the long suite of the fuzz targets. Each of them is a stage, so that a run that was interrupted continues with the next target.
const fuzzSuite = "fuzz"

// wantsFuzz reports whether the long suites that were asked for include the fuzz targets.
func wantsFuzz(suites string) bool {
	return suites == "" || slices.Contains(strings.Split(suites, ","), fuzzSuite)
}

// long returns the suites that were asked for. Those that need no clusters come last.
func long(found facts) ([]stage, error) {
	if found.suites == "" {
		return append(skipWithoutRoot(slices.Clone(suites), found), fuzz(found)...), nil
	}
	var plan []stage
	for name := range strings.SplitSeq(found.suites, ",") {
		if name == fuzzSuite {
			continue
		}
		i := slices.IndexFunc(suites, func(s stage) bool { return s.name == name })
		if i < 0 {
			var names []string
			for _, s := range suites {
				names = append(names, s.name)
			}
			names = append(names, fuzzSuite)
			return nil, fmt.Errorf("no long suite is called %q; there are: %s", name, strings.Join(names, " "))
		}
		plan = append(plan, suites[i])
	}
	plan = skipWithoutRoot(plan, found)
	if wantsFuzz(found.suites) {
		plan = append(plan, fuzz(found)...)
	}
	return plan, nil
}

func skipWithoutRoot(plan []stage, found facts) []stage {
	for i := range plan {
		plan[i] = withRoot(plan[i], found)
	}
	return plan
}

// needsRoot is why a stage on clusters does not run.
const needsRoot = "real clusters need root"

// withRoot skips a stage that makes clusters if it could not.
func withRoot(s stage, found facts) stage {
	if !found.root {
		s.skip = needsRoot
	}
	return s
}

// fuzz runs every fuzz target, one after the other: the fuzzer uses all processors. Go keeps inputs that reach new code in its build cache, from which
// the next run continues, and writes an input that fails to testdata/fuzz of its package, where it becomes a test.
func fuzz(found facts) (plan []stage) {
	for _, target := range found.fuzz {
		plan = append(plan, stage{
			name: "fuzz " + path.Base(target.path) + " " + target.name, about: fmt.Sprintf("%s, for %s", target.path, found.time),
			commands: []command{{dir: target.dir, args: []string{"go", "test", "-run", "^$", "-fuzz", "^" + target.name + "$", "-fuzztime", found.time, target.path}}},
		})
	}
	return plan
}

// apart reports whether a package has a stage of its own.
func apart(path string) bool {
	return path == "liqo.io/liqo" || strings.HasPrefix(path, "liqo.io/liqo/playground/e2e") || strings.HasPrefix(path, "liqo.io/liqo/playground/bench") ||
		strings.HasPrefix(path, "liqo.io/liqo/test/") && !strings.HasPrefix(path, "liqo.io/liqo/test/env") && !slices.Contains(alone, path)
}

// alone are the programs that run in the clusters of tests, and packages that decide or read; their own tests need no cluster.
var alone = []string{
	"liqo.io/liqo/test/guide", "liqo.io/liqo/test/history", "liqo.io/liqo/test/programs/operator", "liqo.io/liqo/test/soak/plan",
	"liqo.io/liqo/test/stamp", "liqo.io/liqo/test/traffic",
}

func benchmark(found facts) stage {
	s := stage{name: "bench", about: "numbers for docs/benchmarks.md", commands: []command{{
		dir: "playground", args: []string{"go", "test", "-run", "^$", "-bench", ".", "-benchtime", "1x", "-count=1", "-timeout", "90m", "./bench", "-v"},
	}}}
	return withRoot(s, found)
}

func benchmarkNetwork(found facts) stage {
	s := stage{name: "bench-network", about: "throughput, latency and memory of the network, for docs/benchmarks.md", commands: []command{{
		args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/bench", "-measure", "-v"},
	}}}
	return withRoot(s, found)
}

func benchmarkOffload(found facts) stage {
	s := stage{name: "bench-offload", about: "time, writes, memory and bytes of offloading, for docs/benchmarks.md", commands: []command{{
		args: []string{"go", "test", "-count=1", "-timeout", "60m", "./test/bench/offload", "-measure", "-document", "../../../docs/benchmarks.md", "-v"},
	}}}
	return withRoot(s, found)
}
