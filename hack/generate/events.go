// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// reasonFiles declare what users see in conditions and events.
var reasonFiles = []struct{ title, path string }{
	{"Conditions of ForeignClusters", "apis/discovery/v1alpha1/conditions.go"},
	{"Conditions of ResourceSlices", "apis/sharing/v1alpha1/conditions.go"},
	{"Conditions of NetworkConfigs, TunnelEndpoints and IPMappings", "apis/net/v1alpha1/conditions.go"},
	{"Conditions of NamespaceOffloadings, for each remote namespace", "apis/offloading/v1alpha1/conditions.go"},
	{"Events", "apis/reasons/reasons.go"},
}

// eventsPage writes the page of conditions and events.
func eventsPage() error {
	var out bytes.Buffer
	out.WriteString(
		"What conditions report, and which events Liqo writes, by reason.\nThe message of a condition and the text of an event name what was seen and what to try.\n",
	)
	for _, file := range reasonFiles {
		source, err := os.ReadFile(file.path)
		if err != nil {
			return err
		}
		text, err := reasonsText(source)
		if err != nil {
			return fmt.Errorf("%s: %w", file.path, err)
		}
		fmt.Fprintf(&out, "\n## %s\n%s", file.title, text)
	}
	return page("events.md", "Conditions and events", "the constants in apis", out.String())
}

// reasonsText makes a table of each group of constants. Each constant has a comment that explains it to users.
func reasonsText(source []byte) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	for _, node := range file.Decls {
		group, ok := node.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || !group.Lparen.IsValid() {
			continue
		}
		if heading := cell(group.Doc.Text()); strings.HasPrefix(heading, "The states of") {
			continue // values of a field, which api.md has
		} else if heading != "" {
			fmt.Fprintf(&out, "\n%s\n\n| Name | Meaning |\n|---|---|\n", heading)
		}
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			name := constant.Names[0].Name
			comment := strings.TrimLeft(strings.TrimPrefix(cell(constant.Doc.Text()), name), ":, ")
			if comment == "" {
				return "", fmt.Errorf("%s has no comment, which users need", name)
			}
			value, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "| `%s` | %s |\n", value, comment)
		}
	}
	return out.String(), nil
}
