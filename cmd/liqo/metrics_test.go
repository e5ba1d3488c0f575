// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"liqo.io/liqo/internal/kube/metric"
)

// measuresNothing are uses of a package for something else than what it measures.
var measuresNothing = map[string]string{
	"gateway liqo_apply_total": "the port of the metrics is of package manager, which knows the owners that package ssa has",
	"dns liqo_apply_total":     "the manager of a process knows the owners that package ssa has, and applies nothing",
}

// TestMetricsOfRoles: a row of a metric names exactly the roles with a port of metrics whose code leads to what measures it.
func TestMetricsOfRoles(t *testing.T) {
	reached, imports := reachedByRoles(t), ourPackages(t)
	rows := metric.Rows()
	if len(rows) < 15 {
		t.Fatalf("only %d rows", len(rows))
	}
	const page = "../../docs/reference/metrics.md"
	text, err := os.ReadFile(page)
	must(t, err)
	for _, row := range rows {
		if !strings.Contains(string(text), "\n| `"+row.Name+"` |") {
			t.Errorf("%s lacks %s: import its package in hack/generate/reference.go, and run: make generate", page, row.Name)
		}
	}
	for _, r := range roles() {
		from, ok := reached[r.Name]
		if !ok {
			t.Errorf("role %s is not found in the source", r.Name)
		}
		measured := map[string]bool{}
		for _, name := range imports.measuredFrom(from.imports) {
			measured[name] = from.serves
		}
		for _, row := range rows {
			key := r.Name + " " + row.Name
			if lists := slices.Contains(row.Roles, r.Name); lists != (measured[row.Name] && measuresNothing[key] == "") {
				t.Errorf("%s: measured: %t, in the roles of its row: %t, accepted as not measured: %q", key, measured[row.Name], lists, measuresNothing[key])
			}
			if measuresNothing[key] != "" && !measured[row.Name] {
				t.Errorf("%s is not used at all: remove the line in measuresNothing", key)
			}
		}
	}
}

// ours is a package of this module: what it imports, and the metrics that it declares.
type ours struct {
	imports, metrics []string
}

type packages map[string]ours

var nameOfMetric = regexp.MustCompile(`"(liqo_[a-z_]+)"`)

// ourPackages returns what is linked.
func ourPackages(t *testing.T) packages {
	t.Helper()
	output, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", ".").Output()
	must(t, err)
	all := packages{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var found struct {
			ImportPath, Dir  string
			GoFiles, Imports []string
		}
		if err := decoder.Decode(&found); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(found.ImportPath, "liqo.io/liqo/") {
			continue
		}
		pkg := ours{imports: found.Imports}
		for _, file := range found.GoFiles {
			text, err := os.ReadFile(filepath.Join(found.Dir, file))
			must(t, err)
			for _, match := range nameOfMetric.FindAllStringSubmatch(string(text), -1) {
				pkg.metrics = append(pkg.metrics, match[1])
			}
		}
		all[found.ImportPath] = pkg
	}
}

// measuredFrom returns the metrics of packages and of what they import.
func (p packages) measuredFrom(paths []string) (metrics []string) {
	seen := map[string]bool{}
	for queue := slices.Clone(paths); len(queue) > 0; queue = queue[1:] {
		if pkg, ok := p[queue[0]]; ok && !seen[queue[0]] {
			seen[queue[0]] = true
			metrics, queue = append(metrics, pkg.metrics...), append(queue, pkg.imports...)
		}
	}
	return metrics
}

// reach is what the code of a role in this package uses.
type reach struct {
	imports []string
	// serves is whether it has a port of metrics.
	serves bool
}

// rolesPath is the import path of the folders of this program, whose names are followed as those of this package.
const rolesPath = "liqo.io/liqo/cmd/liqo/"

// reachedByRoles follows the names of this package, and of its folders, from each role. A name is FOLDER.NAME; this package has no folder.
func reachedByRoles(t *testing.T) map[string]reach {
	t.Helper()
	found, declared := map[string]reach{}, map[string][]declaration{}
	paths, err := filepath.Glob("*.go")
	must(t, err)
	below, err := filepath.Glob("*/*.go")
	must(t, err)
	starts := map[string]string{}
	for _, path := range slices.Concat(paths, below) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		must(t, err)
		named, folder := importsOf(file), strings.TrimSuffix(filepath.Dir(path), ".")
		for _, node := range file.Decls {
			for _, name := range namesOf(node) {
				declared[folder+"."+name] = append(declared[folder+"."+name], declaration{node, folder, named})
			}
			ast.Inspect(node, func(part ast.Node) bool {
				if literal, ok := part.(*ast.CompositeLit); ok && isRole(literal.Type) && len(literal.Elts) > 0 {
					if name, ok := literal.Elts[0].(*ast.KeyValueExpr).Value.(*ast.BasicLit); ok {
						starts[strings.Trim(name.Value, `"`)] = folder + "." + namesOf(node)[0]
					}
				}
				return true
			})
		}
	}
	for role, start := range starts {
		var r reach
		seen := map[string]bool{}
		for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
			if seen[queue[0]] {
				continue
			}
			seen[queue[0]] = true
			for _, one := range declared[queue[0]] {
				ast.Inspect(one.node, func(part ast.Node) bool {
					switch part := part.(type) {
					case *ast.SelectorExpr:
						if of, ok := part.X.(*ast.Ident); ok {
							if folder, ok := strings.CutPrefix(one.imports[of.Name], rolesPath); ok {
								queue = append(queue, folder+"."+part.Sel.Name)
							}
						}
					case *ast.Ident:
						queue = append(queue, one.folder+"."+part.Name)
						r.serves = r.serves || part.Name == "MetricsAddress" || part.Name == "Metrics"
						if path := one.imports[part.Name]; path != "" && !strings.HasPrefix(path, rolesPath) {
							r.imports = append(r.imports, path)
						}
					}
					return true
				})
			}
		}
		found[role] = r
	}
	return found
}

// declaration is one of this package or of a folder, with the imports of its file by name.
type declaration struct {
	node    ast.Decl
	folder  string
	imports map[string]string
}

func importsOf(file *ast.File) map[string]string {
	named := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		named[name] = path
	}
	return named
}

// namesOf returns what a declaration names; a method belongs to its type.
func namesOf(node ast.Decl) (names []string) {
	switch node := node.(type) {
	case *ast.FuncDecl:
		if node.Recv == nil {
			return []string{node.Name.Name}
		}
		of := node.Recv.List[0].Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		return []string{of.(*ast.Ident).Name}
	case *ast.GenDecl:
		for _, spec := range node.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// isRole reports whether an expression is the type role.Role.
func isRole(expression ast.Expr) bool {
	selector, ok := expression.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "Role"
}
