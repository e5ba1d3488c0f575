// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// The conventions for files and packages. Imports and modules: conventions_imports_test.go.
// README, Makefile and documents: conventions_docs_test.go. The text of each failure
// states what to do.

// topLevel is the closed list of what may lie at the root. A new entry is a
// decision: state in ARCHITECTURE.md what it is for.
var topLevel = []string{
	".ci", ".gitattributes", ".github", ".gitignore",
	"ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
	"apis", "cmd", "conventions_docs_test.go", "conventions_imports_test.go", "conventions_labels_test.go", "conventions_listeners_test.go",
	"conventions_pages_test.go", "conventions_security_test.go", "conventions_symptoms_test.go", "conventions_test.go",
	"conventions_words_test.go", "deployments", "doc.go", "docs",
	"examples", "go.mod", "go.sum", "hack",
	"internal", "playground", "terraform", "test",
}

const maxFileBytes = 1 << 20

func TestTree(t *testing.T) {
	for _, file := range files(t) {
		top, _, _ := strings.Cut(file, "/")
		if !slices.Contains(topLevel, top) {
			t.Errorf("%s: %q is not in the list of top-level entries; move the file, or add the entry to topLevel and to ARCHITECTURE.md", file, top)
		}
		if name := path.Base(file); name == "go.work" || name == "go.work.sum" {
			t.Errorf("%s: a workspace merges all modules into one version selection; remove it (docs/adr/0002-modules.md)", file)
		}
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > maxFileBytes {
			t.Errorf("%s: %d bytes; files over 1 MiB do not belong into git: generate it, or download it when needed", file, info.Size())
		}
	}
}

func TestText(t *testing.T) {
	for _, file := range files(t) {
		text := read(t, file)
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			continue // no text
		}
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			t.Errorf("%s: end the file with a newline", file)
		}
		if bytes.HasSuffix(text, []byte("\n\n")) {
			t.Errorf("%s: remove the empty lines at the end", file)
		}
		// Golden files and scripts hold what programs print, white space included.
		if strings.Contains(file, "/testdata/") {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.TrimRight(line, " \t\r") != line {
				t.Errorf("%s:%d: remove the white space at the end of the line", file, i+1)
			}
		}
	}
}

func TestLicence(t *testing.T) {
	const header = "// SPDX-License-Identifier: Apache-2.0\n"
	for _, file := range sources(t) {
		if !strings.HasPrefix(string(read(t, file.path)), header) && !file.generated {
			t.Errorf("%s: the first line must be %q", file.path, strings.TrimSpace(header))
		}
	}
	for _, file := range files(t) {
		script := filepath.Ext(file) == ".sh" || bytes.HasPrefix(read(t, file), []byte("#!"))
		if script && !bytes.Contains(read(t, file), []byte("# SPDX-License-Identifier: Apache-2.0\n")) {
			t.Errorf("%s: a script needs the line \"# SPDX-License-Identifier: Apache-2.0\"", file)
		}
	}
	if licence := string(read(t, "LICENSE")); !strings.Contains(licence, "Apache License") || !strings.Contains(licence, "END OF TERMS AND CONDITIONS") {
		t.Error("LICENSE must hold the full text of the Apache License 2.0")
	}
}

// attic lists names that do not name their subject.
var attic = []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "forge", "getters", "types"}

var packageName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

func TestPackageNames(t *testing.T) {
	for dir, pkg := range packages(t) {
		for name := range strings.SplitSeq(dir, "/") {
			if slices.Contains(attic, name) {
				t.Errorf("%s: the name %q does not name the subject; a helper lives with its user, a shared one under a noun", dir, name)
			}
		}
		if name := path.Base(dir); dir != "." && !packageName.MatchString(name) {
			t.Errorf("%s: a Go package is one lower-case noun without hyphen, capital or underscore", dir)
		} else if pkg.name != "main" && dir != "." && pkg.name != name {
			t.Errorf("%s: the package calls itself %q; folder and package have the same name", dir, pkg.name)
		}
	}
}

func TestPackageComments(t *testing.T) {
	for dir, pkg := range packages(t) {
		opening := "Package " + pkg.name + " "
		if pkg.name == "main" {
			opening = "Command " // or what the program is called
		}
		switch {
		case !pkg.written:
		case pkg.doc == "":
			t.Errorf("%s: no package comment; state what the package is for, what it must not know, and which test proves it", dir)
		case pkg.name != "main" && !strings.HasPrefix(pkg.doc, opening):
			t.Errorf("%s: the package comment must start with %q", dir, opening)
		}
	}
}

const (
	maxPackageLines  = 1500
	maxFileLines     = 400
	maxFunctionLines = 80
	maxParameters    = 5
	maxColumns       = 160 // a tab is one column, as linters of Go count by default

	// slack is by how many lines a size in hack/limits.txt may exceed what is there: a ratchet that every removed line moves would be noise.
	slack = 100
)

// TestLimits holds the soft limits. hack/limits.txt lists what may exceed one, with its present size and the reason:
// what grows beyond that size must change the line. Generated files are free; of tests only the width of lines counts.
func TestLimits(t *testing.T) {
	const list = "hack/limits.txt"
	allowed := table(t, list, 2)
	used := map[string]bool{}
	exceeds := func(kind, what string, is, limit int) {
		if is <= limit {
			return
		}
		key := kind + " " + what
		used[key] = true
		size, _, _ := strings.Cut(allowed[key], " ")
		most, err := strconv.Atoi(size)
		switch {
		case allowed[key] == "":
			t.Errorf(
				"%s: %d %s, the limit is %d; make it smaller, or add a line with the size and the reason to %s:\n%s %d REASON", what, is, kind, limit,
				list, key, is,
			)
		case err != nil:
			t.Errorf("%s: the line of %q has no size: write %s %d REASON", list, key, key, is)
		case is > most:
			t.Errorf("%s: %d %s, and %s allows %d; make it smaller, or raise the size and give the reason in the commit", what, is, kind, list, most)
		case most-is > slack:
			t.Errorf("%s: %d %s, and %s allows %d; lower the size to what it is, so that it stays", what, is, kind, list, most)
		}
	}
	lines := map[string]int{}
	for _, file := range sources(t) {
		if file.generated {
			continue
		}
		exceeds("wide-lines", file.path, len(wideLines(t, file)), 0)
		if file.test {
			continue
		}
		lines[path.Dir(file.path)] += file.lines
		exceeds("file-lines", file.path, file.lines, maxFileLines)
		for _, declaration := range file.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := file.path + ":" + function.Name.Name
			exceeds("function-lines", name, file.line(function.End())-file.line(function.Pos())+1, maxFunctionLines)
			exceeds("parameters", name, function.Type.Params.NumFields(), maxParameters)
		}
	}
	for dir, n := range lines {
		exceeds("package-lines", dir, n, maxPackageLines)
	}
	for key := range allowed {
		if !used[key] {
			t.Errorf("%s: %q exceeds nothing any more; remove the line", list, key)
		}
	}
}

// unbreakable lines are marks that tools read as one line, tags of fields, and addresses.
var unbreakable = regexp.MustCompile(`^\s*//( ?\+|go:)|^\s*//\s*\S+$|https?://\S{80}|^\s*[A-Za-z]+ +\S+ +\x60[a-z]+:"`)

// unwrapped are folders and files whose lines are still wider. Nothing joins this list: what is wrapped leaves it.
var unwrapped = []string{
	"apis/offloading/", "apis/virtualkubelet/", "hack/generate/rights.go", "internal/offloading/kinds/",
	"internal/offloading/podplan/history_test.go", "internal/offloading/reflection/", "internal/storage/move/",
	"internal/network/attack_flapping_test.go", "internal/network/attack_networks_test.go", "internal/network/attack_test.go",
	"internal/network/attack_unreported_test.go", "internal/network/bench_test.go", "internal/network/network_test.go",
	"internal/network/shown_test.go", "test/bench/report_test.go",
}

// wideLines returns the numbers of the lines with more than maxColumns characters, but for what cannot be broken, and for raw strings of
// several lines, which are text of another language.
func wideLines(t *testing.T, file source) (numbers []int) {
	t.Helper()
	if slices.ContainsFunc(unwrapped, func(start string) bool { return strings.HasPrefix(file.path, start) }) {
		return nil
	}
	text, err := os.ReadFile(file.path)
	if err != nil {
		t.Fatal(err)
	}
	raw := map[int]bool{}
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && strings.Contains(literal.Value, "\n") {
			for i := file.line(literal.Pos()); i <= file.line(literal.End()); i++ {
				raw[i] = true
			}
		}
		return true
	})
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > maxColumns && !raw[number] && !unbreakable.MatchString(line) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// ---- reading the tree, once ----

// files returns the slash-separated paths of all files that git tracks or would
// track; without git, of all files but the built ones.
func files(t *testing.T) []string {
	t.Helper()
	all, err := listFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found only %v: the conventions must run in the root of the repository", all)
	}
	return all
}

var listFiles = sync.OnceValues(func() ([]string, error) {
	// safe.directory: the tests also run as a user who does not own the clone.
	output, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err == nil {
		all := strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")
		return slices.DeleteFunc(all, func(file string) bool {
			_, err := os.Lstat(file)
			return err != nil // deleted, not yet committed
		}), nil
	}
	var all []string
	err = filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (file == ".git" || file == "bin") {
			return filepath.SkipDir
		}
		if !entry.IsDir() {
			all = append(all, filepath.ToSlash(file))
		}
		return nil
	})
	return all, err
})

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// source is one parsed Go file.
type source struct {
	path      string
	test      bool
	generated bool
	lines     int
	syntax    *ast.File
	positions *token.FileSet
}

func (s source) line(at token.Pos) int { return s.positions.Position(at).Line }

// imports returns the import paths of the file.
func (s source) imports() (paths []string) {
	for _, spec := range s.syntax.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

var (
	parseOnce sync.Once
	parsed    []source
)

func sources(t *testing.T) []source {
	t.Helper()
	all := files(t)
	parseOnce.Do(func() {
		for _, file := range all {
			if filepath.Ext(file) != ".go" || strings.Contains(file, "/testdata/") {
				continue
			}
			text := read(t, file)
			positions := token.NewFileSet()
			syntax, err := parser.ParseFile(positions, file, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			parsed = append(parsed, source{
				path: file, test: strings.HasSuffix(file, "_test.go"), generated: ast.IsGenerated(syntax),
				lines: bytes.Count(text, []byte("\n")), syntax: syntax, positions: positions,
			})
		}
	})
	return parsed
}

type pkg struct {
	name, doc string
	written   bool // by hand, at least in part
}

// packages returns name and comment of each Go package by its folder. A folder
// with tests only is a package too.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	found := map[string]pkg{}
	for _, file := range sources(t) {
		dir := path.Dir(file.path)
		name := strings.TrimSuffix(file.syntax.Name.Name, "_test")
		known := found[dir]
		if !file.test || known.name == "" {
			known.name = name
		}
		known.written = known.written || !file.generated
		if file.syntax.Doc != nil {
			known.doc = file.syntax.Doc.Text()
		}
		found[dir] = known
	}
	return found
}

// table reads a list: key words, then a remark, on each line.
func table(t *testing.T, file string, keyWords int) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for i, line := range strings.Split(string(read(t, file)), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < keyWords+2 {
			t.Errorf("%s:%d: want %d words and then a reason of two words at least", file, i+1, keyWords)
			continue
		}
		key := strings.Join(words[:keyWords], " ")
		if _, twice := rows[key]; twice {
			t.Errorf("%s:%d: %q stands there twice", file, i+1, key)
		}
		rows[key] = strings.Join(words[keyWords:], " ")
	}
	return rows
}
