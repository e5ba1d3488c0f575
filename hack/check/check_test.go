// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStages(t *testing.T) {
	everything := facts{root: true, modules: []module{
		{
			dir:        ".",
			packages:   []string{"liqo.io/liqo", "liqo.io/liqo/internal/kube/kubetest", "liqo.io/liqo/test/e2e", "liqo.io/liqo/test/traffic"},
			concurrent: []string{"liqo.io/liqo/internal/kube/kubetest", "liqo.io/liqo/test/e2e"},
		},
		{dir: "playground", packages: []string{"liqo.io/liqo/playground", "liqo.io/liqo/playground/e2e"}},
		{dir: "playground/components/kube", packages: []string{"liqo.io/liqo/playground/components/kube"}},
	}, fuzz: []fuzzTarget{{".", "liqo.io/liqo/x", "FuzzX"}}, time: "1s"}
	user := everything
	user.root = false
	two := everything
	two.suites = "network,e2e"
	fuzzing, scanned := user, everything
	fuzzing.suites, scanned.vulnerabilities = "fuzz,network", "vulndb.zip"

	for _, test := range []struct {
		name, group string
		facts       facts
		want        []string // stage names; "-" in front of those that are not run
	}{
		{"all as root", "all", everything, []string{
			"format", "conventions", "generated", "build", "unit playground", "-vulnerabilities", "servers", "race product", "unit product", "unit kube",
			"lint product", "lint playground", "lint kube", "clusters", "journey", "several", "offload", "stateful", "end",
		}},
		{"all as ordinary user", "all", user, []string{
			"format", "conventions", "generated", "build", "unit playground", "-vulnerabilities", "servers", "race product", "unit product", "unit kube",
			"lint product", "lint playground", "lint kube", "-clusters", "-journey", "-several", "-offload", "-stateful", "-end",
		}},
		{"journey", "e2e", everything, []string{"build", "journey"}},
		{"bench", "bench", user, []string{"build", "-bench"}},
		{"unit", "unit", everything, []string{"unit product", "unit playground", "unit kube"}},
		{"race", "race", everything, []string{"build", "servers", "race product"}},
		{"long", "long", everything, []string{
			"build", "playground", "quickstart", "e2e", "offload", "field", "programs", "faults", "network", "several", "soak", "tenants",
			"stateful", "examples", "install", "release", "fuzz x FuzzX",
		}},
		{"two long suites", "long", two, []string{"build", "network", "e2e"}},
		{"soak", "soak", everything, []string{"build", "soak"}},
		{"soak as ordinary user", "soak", user, []string{"build", "-soak"}},
		{"fuzz", "fuzz", everything, []string{"fuzz x FuzzX"}},
		{"fuzz among long suites, as ordinary user", "long", fuzzing, []string{"build", "-network", "fuzz x FuzzX"}},
		{"scan", "vulnerabilities", scanned, []string{"vulnerabilities"}},
		{"scan without a database", "vulnerabilities", everything, []string{"-vulnerabilities"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := stages(test.group, test.facts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range plan {
				if s.skip != "" {
					s.name = "-" + s.name
				}
				got = append(got, s.name)
				for _, c := range s.commands {
					if (strings.HasPrefix(s.name, "unit") || strings.HasPrefix(s.name, "race")) && slices.ContainsFunc(c.args, apart) {
						t.Errorf("stage %s runs a package that has a stage of its own: %v", s.name, c.args)
					}
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("stages %v\n  want %v", got, test.want)
			}
		})
	}
	if _, err := stages("everything", everything); err == nil {
		t.Error("an unknown group was accepted")
	}
	two.suites = "network,nosuch"
	if _, err := stages("long", two); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("an unknown suite gives %v", err)
	}
}

// The race detector runs beside the other tests and lint; then the suites on clusters run in two lanes, on clusters that the last stage takes away.
func TestGate(t *testing.T) {
	plan, err := stages("all", facts{root: true, modules: []module{
		{dir: ".", packages: []string{"a", "b"}, concurrent: []string{"b"}}, {dir: "playground", packages: []string{"c", "d"}, concurrent: []string{"d"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	lanes, began := map[string]string{}, map[string]int{}
	for start, next := 0, 0; start < len(plan); start = next {
		var all map[string][]int
		all, next = abreast(plan, start)
		for lane, ones := range all {
			for _, i := range ones {
				lanes[plan[i].name], began[plan[i].name] = lane, start
			}
		}
	}
	for name, lane := range map[string]string{
		"race product": "race", "unit product": "others", "lint product": "others", "lint playground": "others",
		"journey": "first clusters", "several": "first clusters", "offload": "second clusters", "stateful": "second clusters",
	} {
		group := "race product"
		if strings.Contains(lane, "clusters") {
			group = "journey"
		}
		if began[name] != began[group] || lanes[name] != lane {
			t.Errorf("%s: in lane %q, beside %s: %v", name, lanes[name], group, began[name] == began[group])
		}
	}
	for _, name := range []string{"format", "conventions", "generated", "build", "unit playground", "race playground", "servers"} {
		if began[name] >= began["race product"] {
			t.Errorf("%s is not before the race detector", name)
		}
	}
	if began["clusters"] <= began["race product"] || began["clusters"] >= began["journey"] {
		t.Error("the clusters do not come up between what computes and the suites on them")
	}
	if last := plan[len(plan)-1]; !last.always || last.lane != "" {
		t.Errorf("the last stage takes the clusters away, also after an interrupt: %+v", last)
	}
}

func TestSoakCommand(t *testing.T) {
	for seed, want := range map[string]string{
		"":  "go test -count=1 -timeout 0 ./test/soak -v -for 1h -namespaces 20 -each 15 -pace 12s",
		"7": "go test -count=1 -timeout 0 ./test/soak -v -for 1h -namespaces 20 -each 15 -pace 12s -seed 7",
	} {
		if got := strings.Join(soak(facts{root: true, time: "1h", seed: seed}).commands[0].args, " "); got != want {
			t.Errorf("seed %q: %s", seed, got)
		}
	}
}

// A package runs in exactly one of the stages unit and race.
func TestUnitOrRace(t *testing.T) {
	found := facts{modules: []module{{dir: ".", packages: []string{"a", "b"}, concurrent: []string{"b"}}}}
	plan, err := stages("all", found)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string][]string{}
	for _, s := range plan {
		for _, c := range s.commands {
			for _, word := range c.args {
				if word == "a" || word == "b" {
					ran[word] = append(ran[word], s.name)
				}
			}
		}
	}
	if !slices.Equal(ran["a"], []string{"unit product"}) || !slices.Equal(ran["b"], []string{"race product"}) {
		t.Errorf("the packages ran in %v", ran)
	}
}

// A test that the race detector leaves out runs among the unit tests, of its package alone.
func TestSingle(t *testing.T) {
	found := facts{modules: []module{
		{dir: ".", packages: []string{"a", "b", "c"}, concurrent: []string{"b", "c"}, single: map[string][]string{"c": {"TestY", "TestX"}, "b": {"TestX"}}},
	}}
	for _, group := range []string{"all", "unit"} {
		plan, err := stages(group, found)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range plan {
			if s.name == "unit product" {
				for _, c := range s.commands {
					got = append(got, strings.Join(c.args, " "))
				}
			}
		}
		want := map[string][]string{
			"all":  {"go test -timeout 30m -vet=off a", "go test -timeout 30m -vet=off -run ^(TestX|TestY)$ b c"},
			"unit": {"go test -timeout 30m a b c"},
		}[group]
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", group, got, want)
		}
	}
	text := "func TestA(t *testing.T) {\n\tsingle.Goroutine(t)\n}\n\nfunc TestB(t *testing.T) {\n\tt.Log(\"single.Goroutine(t)\")\n\tsingle.Goroutine(t)\n}\n"
	if names := singleTests.FindAllStringSubmatch(text, -1); len(names) != 1 || names[0][1] != "TestA" {
		t.Errorf("found %q", names)
	}
}

// Suites that have passed are not run again at the same commit, and all are at another.
func TestProgress(t *testing.T) {
	folder := t.TempDir()
	p, err := readProgress(folder, "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []result{{stage: stage{name: "good"}, took: time.Minute}, {stage: stage{name: "bad"}, err: errors.New("x")}} {
		if err := p.record(r); err != nil {
			t.Fatal(err)
		}
	}
	for commit, want := range map[string]string{"one": "[skip run]", "two": "[run run]", "one-dirty": "[run run]"} {
		p, err := readProgress(folder, commit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range p.remaining([]stage{{name: "good"}, {name: "bad"}}) {
			got = append(got, map[bool]string{true: "run", false: "skip"}[s.skip == ""])
		}
		if fmt.Sprint(got) != want {
			t.Errorf("at commit %s: %v, want %s", commit, got, want)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	sh := func(script string) command { return command{args: []string{"/bin/sh", "-c", script}} }
	listing, assets := sh("echo main.go"), sh("echo building; echo "+dir)
	listing.silent, assets.assets = true, true

	var out bytes.Buffer
	results := run(context.Background(), []stage{
		{name: "servers", commands: []command{assets}},
		{name: "uses", commands: []command{sh(`echo "ok  	fine"; test "$KUBEBUILDER_ASSETS" = ` + dir)}},
		{name: "broken", commands: []command{sh("echo the reason; exit 3"), sh("touch " + mark)}},
		{name: "format", commands: []command{listing}},
		{name: "later", commands: []command{sh("true")}},
		{name: "tidies", commands: []command{sh("exit 3")}, after: []command{sh("touch " + mark + ".after")}},
		{name: "skipped", skip: "no root", commands: []command{sh("touch " + mark)}},
		{name: "e2e", last: true, commands: []command{sh("touch " + mark)}},
	}, &out, func(result) error { return nil })

	for i, want := range []string{"passed", "passed", "FAILED", "FAILED", "passed", "FAILED", "NOT RUN", "NOT RUN"} {
		line := summary(results[i:i+1], 0)
		if !strings.Contains(line, want) {
			t.Errorf("stage %s: %q, want %s", results[i].stage.name, line, want)
		}
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Error("a command ran that should not have")
	}
	if _, err := os.Stat(mark + ".after"); err != nil {
		t.Errorf("what a failed stage has made was not taken away: %v", err)
	}
	if end := summary(results, 0); !strings.Contains(end, "the reason") || strings.Contains(end, "fine") {
		t.Errorf("the summary must repeat what failed and nothing else:\n%s", end)
	}
}

// Stages of different lanes run at the same time, those of one lane one after the other, and a stage without a lane alone. What each prints stays together.
func TestLanes(t *testing.T) {
	dir := t.TempDir()
	sh := func(script string) []command {
		return []command{{dir: dir, args: []string{"/bin/sh", "-c", script}}}
	}
	// The two fifos are opened only if both stages run.
	var out bytes.Buffer
	results := run(t.Context(), []stage{
		{name: "before", commands: sh("mkfifo there back")},
		{name: "left", lane: "left", commands: sh("echo left 1; echo x >there; read y <back; echo left 2; touch left")},
		{name: "right", lane: "right", commands: sh("read x <there; echo right 1; echo y >back; exit 3")},
		{name: "left after left", lane: "left", commands: sh("test -e left")},
		{name: "left's last", lane: "left", last: true, commands: sh("true")},
		{name: "right's last", lane: "right", last: true, commands: sh("true")},
		{name: "after", commands: sh("test -e left")},
		{name: "journey", last: true, commands: sh("true")},
	}, &out, func(result) error { return nil })
	for i, want := range []string{"passed", "passed", "FAILED", "passed", "passed", "NOT RUN", "passed", "NOT RUN"} {
		if line := summary(results[i:i+1], 0); !strings.Contains(line, want) {
			t.Errorf("stage %s: %q, want %s", results[i].stage.name, line, want)
		}
	}
	if !strings.Contains(out.String(), "left 1\nleft 2\n==> left") || !strings.Contains(out.String(), "right 1\ncheck:") {
		t.Errorf("what a stage prints does not stay together:\n%s", &out)
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "waiting") {
			cancel()
		}
		return len(p), nil
	})
	results := run(ctx, []stage{
		{name: "long", commands: []command{{args: []string{"/bin/sh", "-c", "trap 'exit 1' INT; echo waiting; while :; do sleep 0.1; done"}}}},
		{name: "next", commands: []command{{args: []string{"/bin/true"}}}},
	}, out, func(result) error { return nil })
	if results[0].err == nil || results[1].skipped == "" {
		t.Errorf("after an interrupt: first stage %v, second skipped %q", results[0].err, results[1].skipped)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestInteresting(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"packages": {
			in: "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/b\nok  \tx\t0.1s\n?   \ty\t[no test files]\n--- FAIL: TestC " +
				"(0.00s)\n    c_test.go:1: why\nFAIL\n",
			want: "--- FAIL: TestC (0.00s)\n    c_test.go:1: why\nFAIL\n",
		},
		"a package that passed": {
			in:   "measured: much\nok  \tx\t0.1s\nwhat a program prints\n\n",
			want: "what a program prints\n\n",
		},
		"as it goes": {
			in: `=== RUN   TestA
=== RUN   TestA/fine
    a_test.go:1: fine so far
=== RUN   TestA/bad
    a_test.go:2: the reason
        in two lines
=== RUN   TestA/later
    a_test.go:3: fine as well
=== NAME  TestA/bad
    a_test.go:4: what was seen
--- FAIL: TestA (2.00s)
    --- PASS: TestA/fine (1.00s)
    --- FAIL: TestA/bad (1.00s)
FAIL
measured:
  much
FAIL	a	2.1s
=== RUN   TestB
    b_test.go:1: fine
--- PASS: TestB (0.00s)
PASS
measured:
  more
ok  	b	0.1s
`,
			want: `    a_test.go:2: the reason
        in two lines
    a_test.go:4: what was seen
--- FAIL: TestA (2.00s)
    --- FAIL: TestA/bad (1.00s)
FAIL
measured:
  much
FAIL	a	2.1s
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := interesting(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	long := interesting("first\n" + strings.Repeat("line\n", 1000) + "last\n")
	if got := strings.Count(long, "\n"); got > 150 || !strings.HasPrefix(long, "first") || !strings.HasSuffix(long, "last\n") {
		t.Errorf("%d lines are no summary: %s", got, long)
	}
}
