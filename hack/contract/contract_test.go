// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
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
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", `package x; func TestX(t *testing.T) { t.Run("one way", nil); t.Run("a/b", nil) }; func (s) TestY() {}`, 0)
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

// TestMerge: the last run counts, by day, except that a skipped test keeps an earlier result; the file of results is read as it is written.
func TestMerge(t *testing.T) {
	events, err := parseEvents([]byte(`{"Commit":"0123456789abcdef-dirty"}
building
{"Time":"2026-01-02T03:04:05Z","Action":"output","Package":"liqo.io/liqo/a","Test":"TestX","Output":"x"}
{"Time":"2026-01-02T03:04:05Z","Action":"fail","Package":"liqo.io/liqo/a","Test":"TestX"}
{"Time":"2026-01-02T03:04:05Z","Action":"skip","Package":"liqo.io/liqo/a","Test":"TestY"}
{"Time":"2026-01-02T03:04:05Z","Action":"pass","Package":"liqo.io/liqo/a","Test":"TestY/one_way"}
{"Time":"2026-01-02T03:04:05Z","Action":"fail","Package":"liqo.io/liqo/a","Test":"TestLater"}
{"Time":"2026-01-02T03:04:05Z","Action":"pass","Package":"liqo.io/liqo/a"}
`))
	if err != nil {
		t.Fatal(err)
	}
	before := "passed 2026-01-03 ffff a.TestLater\npassed 2025-12-31 ffff a.TestX\npassed 2025-12-31 ffff a.TestY\npassed 2025-12-31 ffff a.TestZ\n"
	results, err := parseResults([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	merge(results, events)
	keepNamed(results, []section{{Rows: []row{{Tests: []string{"a.TestLater", "a.TestX", "a.TestY", "a.TestY/one way"}}}}})
	const want = resultsHead + "passed 2026-01-03 ffff a.TestLater\nFAILED 2026-01-02 01234567+ a.TestX\npassed 2025-12-31 ffff a.TestY\npassed 2026-01-02 01234567+ a.TestY/one_way\n"
	if got := string(formatResults(results)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if again, err := parseResults([]byte(want)); err != nil || len(again) != 4 {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := parseEvents([]byte(`{"Action":"pass","Package":"a","Test":"TestX","Time":"` + time.Now().Format(time.RFC3339) + `"}`)); err == nil {
		t.Error("results of an unknown commit were taken over")
	}
}

func TestPage(t *testing.T) {
	got := string(page([]section{{Title: "2 Kinds", Rows: []row{
		{"kind `IpamStorage`", []string{"a.TestX/one way", "a.TestY"}, []string{"IpamStorage, "}},
		{"other", []string{"a.TestY"}, nil},
	}}}, parseDifferences(someDifferences), map[string]result{"a.TestX/one_way": {"passed", "2026-01-02", "0123"}}))
	for _, want := range []string{
		"2 rows, of which 1 differ; 2 tests: 1 not run, 1 passed.\n", "| 2026-01-02 | `0123` | 1 |\n", "\n## 2 Kinds\n",
		"| kind `IpamStorage` | computed<br>`a` `TestX/one way`<br>`a` `TestY` | [differs](differences.md#decided)<br>passed<br>not run |\n| other | `a` `TestY` | not run |\n",
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
