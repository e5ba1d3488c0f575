// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tests are the tests of the source.
type tests struct {
	functions map[string]bool // folder.TestName
	// words are the string literals of a folder's tests, which are the only place from where a subtest can have its name.
	words map[string]map[string]bool
}

// readTests parses all files of tests below a folder.
func readTests(root string) (tests, error) {
	found := tests{functions: map[string]bool{}, words: map[string]map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, filepath.Dir(path))
		found.add(filepath.ToSlash(relative), file)
		return err
	})
	return found, err
}

func (all tests) add(folder string, file *ast.File) {
	if all.words[folder] == nil {
		all.words[folder] = map[string]bool{}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Recv == nil {
				all.functions[folder+"."+node.Name.Name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				all.words[folder][text] = true
			}
		}
		return true
	})
}

// suites are the tests on clusters, by folder.
func (all tests) suites() map[string][]string {
	found := map[string][]string{}
	for _, full := range slices.Sorted(maps.Keys(all.functions)) {
		folder, function, _, ok := split(full)
		if ok && strings.HasPrefix(folder, "test/") && function != "TestMain" {
			found[folder] = append(found[folder], full)
		}
	}
	return found
}

// lacks returns why the source has no test of this name, or nothing. Of a subtest it only decides whether the folder's tests hold its name.
func (all tests) lacks(full string) string {
	folder, function, subtest, ok := split(full)
	switch {
	case !ok:
		return "no name of a test; want folder.TestName or folder.TestName/subtest"
	case !all.functions[folder+"."+function]:
		return "no such function in that folder"
	case subtest != "" && !holds(all.words[folder], subtest):
		return fmt.Sprintf("no test of that folder holds the text %q, nor that of each of its parts", subtest)
	}
	return ""
}

// holds reports whether a path of subtests is made of words, which may hold slashes themselves.
func holds(words map[string]bool, path string) bool {
	if words[path] {
		return true
	}
	for i := range path {
		if path[i] == '/' && words[path[:i]] && holds(words, path[i+1:]) {
			return true
		}
	}
	return false
}
