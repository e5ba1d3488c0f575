// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStages(t *testing.T) {
	everything := facts{root: true, e2e: true, bench: true, modules: []module{
		{dir: ".", packages: []string{"liqo.io/liqo", "liqo.io/liqo/internal/kube/kubetest"}},
		{dir: "playground", packages: []string{"liqo.io/liqo/playground", "liqo.io/liqo/playground/e2e"}},
		{dir: "playground/components/kube", packages: []string{"liqo.io/liqo/playground/components/kube"}},
	}}
	user := everything
	user.root = false

	for _, test := range []struct {
		name, group string
		facts       facts
		want        []string // stage names; "-" in front of those that are not run
	}{
		{"all as root", "all", everything, []string{
			"format", "laws", "generated", "build", "servers", "unit product", "unit playground", "unit kube",
			"lint product", "lint playground", "lint kube", "e2e",
		}},
		{"all as ordinary user", "all", user, []string{
			"format", "laws", "generated", "build", "servers", "unit product", "unit playground", "unit kube",
			"lint product", "lint playground", "lint kube", "-e2e",
		}},
		{"before there is an e2e", "e2e", facts{root: true}, []string{"build", "-e2e"}},
		{"before there is a bench", "bench", facts{root: true}, []string{"build", "-bench"}},
		{"unit", "unit", everything, []string{"unit product", "unit playground", "unit kube"}},
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
					if strings.HasPrefix(s.name, "unit") && slices.ContainsFunc(c.args, apart) {
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
		{name: "skipped", skip: "no root", commands: []command{sh("touch " + mark)}},
		{name: "e2e", last: true, commands: []command{sh("touch " + mark)}},
	}, &out)

	for i, want := range []string{"passed", "passed", "FAILED", "FAILED", "passed", "NOT RUN", "NOT RUN"} {
		line := summary(results[i : i+1])
		if !strings.Contains(line, want) {
			t.Errorf("stage %s: %q, want %s", results[i].stage.name, line, want)
		}
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Error("a command ran that should not have")
	}
	if end := summary(results); !strings.Contains(end, "the reason") || strings.Contains(end, "fine") {
		t.Errorf("the summary must repeat what failed and nothing else:\n%s", end)
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "waiting") {
			cancel()
		}
		return len(p), nil
	})
	results := run(ctx, []stage{
		{name: "long", commands: []command{{args: []string{"/bin/sh", "-c", "trap 'exit 1' INT; echo waiting; while :; do sleep 0.1; done"}}}},
		{name: "next", commands: []command{{args: []string{"/bin/true"}}}},
	}, out)
	if results[0].err == nil || results[1].skipped == "" {
		t.Errorf("after an interrupt: first stage %v, second skipped %q", results[0].err, results[1].skipped)
	}
	if took := time.Since(began); took > interruptedFor/2 {
		t.Errorf("the interrupt took %s to arrive", took)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestInteresting(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"packages": {
			in:   "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/b\nok  \tx\t0.1s\n?   \ty\t[no test files]\n--- FAIL: TestC (0.00s)\n    c_test.go:1: why\nFAIL\n",
			want: "--- FAIL: TestC (0.00s)\n    c_test.go:1: why\nFAIL\n",
		},
		"a package that passed": {
			in:   "measured: much\nok  \tx\t0.1s\nwhat a program says\n\n",
			want: "what a program says\n\n",
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
