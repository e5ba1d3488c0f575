// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	applies = "apis/applyconfiguration"
	suffix  = "ApplyConfiguration"
)

// What controller-gen writes for a kind: 270 lines, of which these differ between kinds. Its comments repeat names, or those of the API types.
var (
	comment     = regexp.MustCompile(`(?m)(?:^[ \t]*//.*\n)+([ \t]*[^\s/])`)
	kindType    = regexp.MustCompile(`(?s)type (\w+)ApplyConfiguration struct \{[^}]*ObjectMetaApplyConfiguration [^}]*\}`)
	kindSpec    = regexp.MustCompile(`Spec +\*(\w+) `)
	kindStatus  = regexp.MustCompile(`Status +\*(\w+) `)
	kindVersion = regexp.MustCompile(`b\.WithAPIVersion\("([^"]+)"\)`)
	typeName    = regexp.MustCompile(`\w+` + suffix + `\b`)
	setter      = regexp.MustCompile(`(?ms)^func \(b \*\w+\) (With\w+)\(.*?^}\n+`)
	selector    = regexp.MustCompile(`\.\s*(\w+\(?)`)
	kindSpace   = regexp.MustCompile(`b\.WithNamespace\(namespace\)`)
)

type appliedKind struct {
	name, version, spec, status string
	namespaced                  bool
}

// appliedKinds replaces the file of each kind by a row in the kinds.go of its group, and removes what only those files need: the
// schema from which an apply configuration is extracted, and a switch over all of them. The files of other types lose their comments,
// and what no code of ours names: types, and functions that set a field.
func appliedKinds() error {
	named, err := namedByCode("apis", "cmd", "hack", "internal", "test")
	if err != nil {
		return err
	}
	groups, err := filepath.Glob(applies + "/*/v1*")
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := appliedGroup(group, named); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(applies+"/internal"), os.Remove(applies+"/utils.go"))
}

func appliedGroup(group string, named map[string]bool) error {
	files, err := filepath.Glob(group + "/*.go")
	if err != nil {
		return err
	}
	var kinds []appliedKind
	types := map[string]string{} // texts
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
		kind, ok := kindOf(text)
		switch {
		case filepath.Base(file) == "kinds.go": // of the last run
		case ok:
			kinds = append(kinds, kind)
		default:
			types[typeName.FindString(string(text))] = comment.ReplaceAllString(string(text), "$1")
		}
	}
	kept := reached(types, named)
	for i := range kinds {
		kinds[i].spec, kinds[i].status = orNothing(kinds[i].spec, kept), orNothing(kinds[i].status, kept)
	}
	for name, text := range kept {
		file := strings.ToLower(strings.TrimSuffix(name, suffix)) + ".go"
		if err := writeFormatted(filepath.Join(group, file), withoutSetters(text, named)); err != nil {
			return err
		}
	}
	return writeFormatted(filepath.Join(group, "kinds.go"), rowsOf(filepath.Base(group), kinds))
}

// namedByCode returns the names behind a dot in the code of folders that is written by hand.
func namedByCode(folders ...string) (map[string]bool, error) {
	named := map[string]bool{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || bytes.Contains(text, []byte("DO NOT EDIT.\n\npackage")) {
				return err
			}
			for _, found := range selector.FindAllSubmatch(text, -1) {
				named[string(found[1])] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return named, nil
}

// reached returns the types, by name, that code names, or that a field of such a type has.
func reached(types map[string]string, named map[string]bool) map[string]string {
	kept := map[string]string{}
	var keep func(name string)
	keep = func(name string) {
		text, ok := types[name]
		if _, done := kept[name]; done || !ok {
			return
		}
		kept[name] = text
		for _, field := range typeName.FindAllString(text, -1) {
			keep(field)
		}
	}
	for name := range types {
		if named[name] || named[strings.TrimSuffix(name, suffix)+"("] {
			keep(name)
		}
	}
	return kept
}

// withoutSetters removes the functions that set a field and that no code names.
func withoutSetters(text string, named map[string]bool) []byte {
	return setter.ReplaceAllFunc([]byte(text), func(function []byte) []byte {
		if named[string(setter.FindSubmatch(function)[1])+"("] {
			return function
		}
		return nil
	})
}

func orNothing(half string, kept map[string]string) string {
	if _, ok := kept[half]; ok {
		return half
	}
	return "struct{}"
}

// kindOf reads what the generated text of a kind states; ok is false for the text of another type.
func kindOf(text []byte) (kind appliedKind, ok bool) {
	match := kindType.FindSubmatch(text)
	if match == nil {
		return kind, false
	}
	first := func(pattern *regexp.Regexp, text []byte) string {
		if found := pattern.FindSubmatch(text); found != nil {
			return string(found[1])
		}
		return ""
	}
	return appliedKind{
		name: string(match[1]), version: first(kindVersion, text), namespaced: kindSpace.Match(text),
		spec: cmp.Or(first(kindSpec, match[0]), "struct{}"), status: cmp.Or(first(kindStatus, match[0]), "struct{}"),
	}, true
}

// rowsOf returns the kinds.go of a group.
func rowsOf(pkg string, kinds []appliedKind) []byte {
	slices.SortFunc(kinds, func(a, b appliedKind) int { return cmp.Compare(a.name, b.name) })
	var out bytes.Buffer
	fmt.Fprintf(&out, `// SPDX-License-Identifier: Apache-2.0

// Code generated by hack/generate. DO NOT EDIT.

package %s

import "liqo.io/liqo/`+applies+`/object"
`, pkg)
	for _, kind := range kinds {
		parameters, namespace := "name string", `""`
		if kind.namespaced {
			parameters, namespace = "name, namespace string", "namespace"
		}
		fmt.Fprintf(&out, `
// %[1]sApplyConfiguration states what an apply of this kind wants.
type %[1]sApplyConfiguration = object.Configuration[%[2]s, %[3]s]

// %[1]s has the identity of the object, and nothing else.
func %[1]s(%[4]s) *%[1]sApplyConfiguration {
	return object.New[%[2]s, %[3]s](
		%[5]q, %[1]q, %[6]s, name)
}
`, kind.name, kind.spec, kind.status, parameters, kind.version, namespace)
	}
	return out.Bytes()
}

func writeFormatted(file string, text []byte) error {
	text, err := format.Source(text)
	if err != nil {
		return fmt.Errorf("format %s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}
