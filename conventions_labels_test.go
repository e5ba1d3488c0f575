// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// TestLabels: the keys that package apis/labels names are written nowhere else in product code, so that a reader finds
// each use of a key, and a typing error does not compile. Keys have a slash or our domain; plain words like "liqo" do not
// count. Test code may repeat keys, because it states the contract. So may the playground and the other nested modules,
// which must not depend on the product.
func TestLabels(t *testing.T) {
	positions := token.NewFileSet()
	names := map[string]string{} // key, and the name of its constant
	literals := func(file string, visit func(at token.Pos, value string)) *ast.File {
		t.Helper()
		parsed, err := parser.ParseFile(positions, file, read(t, file), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					visit(literal.Pos(), value)
				}
			}
			return true
		})
		return parsed
	}
	for _, declaration := range literals("apis/labels/labels.go", func(token.Pos, string) {}).Decls {
		constants, ok := declaration.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, spec := range constants.Specs {
			spec, ok := spec.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				continue
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				continue
			}
			if value, err := strconv.Unquote(literal.Value); err == nil && (strings.Contains(value, "/") || strings.Contains(value, "liqo.io")) {
				names[value] = "labels." + spec.Names[0].Name
			}
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d keys were found in apis/labels; adapt this test to its declarations", len(names))
	}
	for _, file := range files(t) {
		nested := strings.HasPrefix(file, "playground/") || strings.HasPrefix(file, "hack/") || strings.HasPrefix(file, "examples/")
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || nested || strings.HasPrefix(file, "apis/labels/") || strings.HasPrefix(file, "test/") {
			continue
		}
		literals(file, func(at token.Pos, value string) {
			if name, found := names[value]; found {
				t.Errorf("%s: %q: use %s", positions.Position(at), value, name)
			}
		})
	}
}
