// SPDX-License-Identifier: Apache-2.0

package features

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// The verdicts. There is no other one.
const (
	Works   = "works"
	Differs = "differs"
	Refused = "refused"
)

// Section is a part of the table.
type Section struct {
	Title string
	Rows  []Row
}

// Row is one feature of a pod; rows.yaml explains the fields.
type Row struct {
	Feature, Is, Why string
	Fields           map[string]string
	Pod              json.RawMessage
	Pods             []json.RawMessage
	There            map[string]any
	Refusal, Event   string
	Subresources     map[string]string
}

//go:embed rows.yaml
var text []byte

// Sections returns the table.
func Sections() (all []Section, err error) {
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("rows.yaml: %w", err)
	}
	return all, nil
}

// Markdown returns the sections as a document has them, each with a table.
func Markdown() (string, error) {
	all, err := Sections()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, section := range all {
		fmt.Fprintf(&out, "## %s\n\n| Feature | At a provider | How, or why |\n|---|---|---|\n", section.Title)
		for _, row := range section.Rows {
			fmt.Fprintf(&out, "| %s | %s | %s |\n", row.Feature, row.verdict(), row.Why)
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func (r Row) verdict() string {
	if r.Is == Works {
		return "works as here"
	}
	return r.Is
}
