// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const someDifferences = `
## Decided

| Part | Documented | Here | Why |
|---|---|---|---|
| 2 Kinds | IpamStorage, NatMapping | computed | [x](x.md) |
| 2 Kinds | IpamStorage has pools | none | [x](x.md) |
`

// TestJudge: a row needs a test that the source has or a difference that is there, and each difference belongs to a row.
func TestJudge(t *testing.T) {
	file, err := parser.ParseFile(
		token.NewFileSet(), "x_test.go", `package x; func TestX(t *testing.T) { t.Run("one way", nil); t.Run("a/b", nil) }; func (s) TestY() {}`,
		0,
	)
	if err != nil {
		t.Fatal(err)
	}
	source := tests{functions: map[string]bool{}, words: map[string]map[string]bool{}}
	source.add("a/b", file)
	both := []string{"IpamStorage, ", "IpamStorage has"}
	for name, test := range map[string]struct {
		row  row
		want string // part of the error
	}{
		"test":                 {row{"x", []string{"a/b.TestX"}, both}, ""},
		"subtest":              {row{"x", []string{"a/b.TestX/one way"}, both}, ""},
		"two levels":           {row{"x", []string{"a/b.TestX/a/b/one way"}, both}, ""},
		"neither":              {row{"x", nil, nil}, "neither a test nor a row"},
		"no such test":         {row{"x", []string{"a/b.TestZ"}, both}, "no such function"},
		"method":               {row{"x", []string{"a/b.TestY"}, both}, "no such function"},
		"no such folder":       {row{"x", []string{"a.TestX"}, both}, "no such function"},
		"no such subtest":      {row{"x", []string{"a/b.TestX/two"}, both}, "no test of that folder holds"},
		"no name":              {row{"x", []string{"TestX"}, both}, "no name of a test"},
		"no such difference":   {row{"x", nil, append(both, "Telemetry")}, "no row of"},
		"ambiguous":            {row{"x", nil, append(both, "IpamStorage")}, "more than one row"},
		"unused difference":    {row{"x", []string{"a/b.TestX"}, both[:1]}, "no row of hack/contract/rows.yaml names"},
		"an item without text": {row{"", []string{"a/b.TestX"}, both}, "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge([]section{{Title: "A", Rows: []row{test.row}}}, source, parseDifferences(someDifferences))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestMerge: the last run counts, to the second; what ran less takes the place of nothing; the file of results is read as it is written.
func TestMerge(t *testing.T) {
	const run = `{"Commit":"0123456789abcdef-dirty"}
building
{"Time":"2026-01-02T03:04:05Z","Action":"output","Package":"liqo.io/liqo/a","Test":"TestX","Output":"x"}
{"Time":"2026-01-02T03:04:05Z","Action":"ACTION","Package":"liqo.io/liqo/a","Test":"TestX"}
{"Time":"2026-01-02T03:04:05Z","Action":"pass","Package":"liqo.io/liqo/a"}
`
	const now, earlier, later = "2026-01-02T03:04:05Z 01234567+ a.TestX", "2026-01-02T03:04:04Z ffff a.TestX", "2026-01-02T03:04:06Z ffff a.TestX"
	for name, test := range map[string]struct{ before, action, want string }{
		"first":                       {"", "pass", "passed " + now},
		"later pass":                  {"FAILED " + earlier, "pass", "passed " + now},
		"later failure":               {"passed " + earlier, "fail", "FAILED " + now},
		"earlier pass of the day":     {"FAILED " + later, "pass", "FAILED " + later},
		"earlier failure of the day":  {"passed " + later, "fail", "passed " + later},
		"skip after a pass":           {"passed " + earlier, "skip", "passed " + earlier},
		"skip after a failure":        {"FAILED " + earlier, "skip", "FAILED " + earlier},
		"skip after a skip":           {"skipped " + earlier, "skip", "skipped " + now},
		"pass after a skip":           {"skipped " + earlier, "pass", "passed " + now},
		"pass of more":                {"passed " + earlier + " 1/2", "pass", "passed " + now},
		"failure after a pass of all": {"passed " + earlier + " 0/2", "fail", "FAILED " + now},
	} {
		_, ends, err := parseEvents([]byte(strings.ReplaceAll(run, "ACTION", test.action)))
		if err != nil {
			t.Fatal(err)
		}
		results, err := parseResults([]byte(test.before))
		if err != nil {
			t.Fatal(err)
		}
		merge(results, ends)
		if got, want := string(formatResults(results)), resultsHead+test.want+"\n"; got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
	}
	if _, _, err := parseEvents([]byte(`{"Action":"pass","Package":"a","Test":"TestX","Time":"2026-01-02T03:04:05Z"}`)); err == nil {
		t.Error("results of an unknown commit were taken over")
	}
	for _, bad := range []string{"passed 2026-01-02 ffff a.TestX", "passed 2026-01-02T03:04:05Z ffff", "passed 2026-01-02T03:04:05Z ffff a.TestX 1"} {
		if results, err := parseResults([]byte(bad)); err == nil {
			t.Errorf("%q was read: %v", bad, results)
		}
	}
}

// TestSubtests: a test whose subtests were skipped did not pass, and one that skipped more than before shows less.
func TestSubtests(t *testing.T) {
	event := func(action, test string) string {
		return `{"Time":"2026-01-02T03:04:05Z","Action":"` + action + `","Package":"liqo.io/liqo/test/a","Test":"` + test + `"}` + "\n"
	}
	_, ends, err := parseEvents([]byte(`{"Commit":"0123"}` + "\n" +
		event("skip", "TestAll/a") + event("skip", "TestAll/b/c") + event("pass", "TestAll/b") + event("pass", "TestAll") +
		event("pass", "TestSome/a/b") + event("skip", "TestSome/c") + event("pass", "TestSome") + event("pass", "TestSomeOther") +
		event("fail", "TestBad/a") + event("skip", "TestBad/b") + event("fail", "TestBad")))
	if err != nil {
		t.Fatal(err)
	}
	results, err := parseResults([]byte("FAILED 2026-01-01T03:04:05Z ffff test/a.TestSome 0/2\nskipped 2026-01-01T03:04:05Z ffff test/a.TestGone\n"))
	if err != nil {
		t.Fatal(err)
	}
	merge(results, ends)
	source := tests{functions: map[string]bool{}}
	for _, name := range []string{"TestAll", "TestSome", "TestSomeOther", "TestBad", "TestMain", "helper"} {
		source.functions["test/a."+name] = true
	}
	keep(results, []section{{Rows: []row{{Tests: []string{"test/a.TestAll/b"}}}}}, source)
	const want = resultsHead + `skipped 2026-01-02T03:04:05Z 0123 test/a.TestAll 2/2
skipped 2026-01-02T03:04:05Z 0123 test/a.TestAll/b 1/1
FAILED 2026-01-02T03:04:05Z 0123 test/a.TestBad 1/2
FAILED 2026-01-01T03:04:05Z ffff test/a.TestSome 0/2
passed 2026-01-02T03:04:05Z 0123 test/a.TestSomeOther
`
	if got := string(formatResults(results)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if again, err := parseResults([]byte(want)); err != nil || string(formatResults(again)) != want {
		t.Errorf("%v, %v", again, err)
	}
	const table = "| `test/a` | 1 of 4 | `TestAll`: skipped, 2026-01-02 `0123`<br>`TestBad`: FAILED, 1 of 2 subtests skipped, 2026-01-02 `0123`<br>" +
		"`TestSome`: FAILED, 2026-01-01 `ffff` | 2026-01-01 `ffff`<br>2026-01-02 `0123` |\n"
	if got := suites(source, results); !strings.HasSuffix(got, table) {
		t.Errorf("got %s\nwant %s", got, table)
	}
}

// TestInHistory: only a commit that the present one comes from was this source.
func TestInHistory(t *testing.T) {
	folder := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com", "-C", folder}, args...)...)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, text)
		}
		return strings.TrimSpace(string(text))
	}
	git("init", "--initial-branch=main")
	git("commit", "--allow-empty", "--message=first")
	first := git("rev-parse", "HEAD")
	git("checkout", "-b", "other")
	git("commit", "--allow-empty", "--message=other")
	other := git("rev-parse", "HEAD")
	git("checkout", "main")
	git("commit", "--allow-empty", "--message=second")
	for commit, want := range map[string]bool{
		first: true, first + "-dirty": true, git("rev-parse", "HEAD"): true, other: false, "unknown": false, "--all": false, strings.Repeat("0", 40): false,
	} {
		if err := inHistory(t.Context(), folder, commit); (err == nil) != want {
			t.Errorf("%s: %v, want accepted: %t", commit, err, want)
		}
	}
}

func TestPage(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := string(page([]section{{Title: "2 Kinds", Rows: []row{
		{"kind `IpamStorage`", []string{"a.TestX/one way", "a.TestY"}, []string{"IpamStorage, "}},
		{"other", []string{"a.TestY"}, nil},
		{"flag", []string{"cmd/liqo.TestDocumentedFlags"}, nil},
	}}}, parseDifferences(someDifferences), map[string]result{
		"a.TestX/one_way":              {outcome: passed, time: at, commit: "0123", skipped: 1, subtests: 3},
		"cmd/liqo.TestDocumentedFlags": {outcome: passed, time: at, commit: "0123"},
	}, tests{}))
	for _, want := range []string{
		"3 rows: 1 differ, and of 1 only general tests show something. 3 tests: 1 not run, 2 passed.\n", "| 2026-01-02 `0123` | 2 |\n", "\n## 2 Kinds\n",
		"| kind `IpamStorage` | computed<br>`a` `TestX/one way`<br>`a` `TestY` | [differs](differences.md#decided)<br>passed, 1 of 3 subtests " +
			"skipped, 2026-01-02 `0123`<br>not run |\n",
		"| other | `a` `TestY` | not run |\n", "| flag | `cmd/liqo` `TestDocumentedFlags` | the flag is accepted, 2026-01-02 `0123` |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

// TestRowsNameEveryValue: each documented value of the chart is in a row of this repository.
func TestRowsNameEveryValue(t *testing.T) {
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	sections, err := parseRows(read(rowsPath))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	code, braces := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^(.*)\{(.*)\}$`)
	for _, s := range sections {
		for _, r := range s.Rows {
			for _, word := range code.FindAllStringSubmatch(r.Item, -1) {
				named[word[1]] = true
				if parts := braces.FindStringSubmatch(word[1]); parts != nil {
					for last := range strings.SplitSeq(parts[2], ",") {
						named[parts[1]+last] = true
					}
				}
			}
		}
	}
	var documented map[string]any
	if err := yaml.Unmarshal(read("deployments/liqo/testdata/documented-values.yaml"), &documented); err != nil {
		t.Fatal(err)
	}
	var visit func(prefix string, value any)
	visit = func(prefix string, value any) {
		tree, is := value.(map[string]any)
		if !is || len(tree) == 0 || strings.HasSuffix(prefix, ".resources") {
			if !named[prefix] {
				t.Errorf("no row names the documented value %s", prefix)
			}
			return
		}
		for key, value := range tree {
			visit(strings.TrimPrefix(prefix+"."+key, "."), value)
		}
	}
	visit("", documented)
}
