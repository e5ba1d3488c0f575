// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"liqo.io/liqo/internal/offloading/features"
)

// valuesPage writes the tables of the chart's values.
func valuesPage() error {
	if err := allowedKeys(); err != nil { // the table has them
		return err
	}
	var out bytes.Buffer
	for _, part := range []struct {
		from, before string
		table        func([]byte) (string, error)
	}{
		{chart + "/values.yaml", `Every value of [the chart](../../deployments/liqo/README.md), for ` + "`liqoctl install --set` and `helm install`" + `.
Values that are not in the tables of this page are refused.

`, valuesTable},
		{chart + "/files/values-without-effect.yaml", `
## Documented values without effect

A file of values that was written for the documentation installs as it is.
These values have no effect; the notes after an installation name each one that asks for something else than what happens anyway.

`, ignoredTable},
	} {
		source, err := os.ReadFile(part.from)
		if err != nil {
			return err
		}
		table, err := part.table(source)
		if err != nil {
			return fmt.Errorf("%s: %w", part.from, err)
		}
		out.WriteString(part.before + table)
	}
	return page("values.md", "Values of the chart", "values.yaml and files/values-without-effect.yaml of deployments/liqo", out.String())
}

//go:embed pods.txt
var podsHead string

// podsPage writes the table of what a pod may ask for.
func podsPage() error {
	table, err := features.Markdown()
	if err != nil {
		return err
	}
	return page("pods.md", "What a pod may ask for", "internal/offloading/features/rows.yaml", podsHead+"\n"+table)
}

// ignoredTable makes a row of each reason why values have no effect.
func ignoredTable(text []byte) (string, error) {
	var entries []struct {
		Because string
		Values  []string
		Only    string
	}
	if err := yaml.Unmarshal(text, &entries); err != nil {
		return "", err
	}
	var out bytes.Buffer
	out.WriteString("| Values | Why they have no effect |\n|---|---|\n")
	for _, entry := range entries {
		because := entry.Because
		if entry.Only != "" {
			because += " (only contents such as `liqotech/auth-service` have no effect)"
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", strings.Join(entry.Values, "`, `"), because)
	}
	return out.String(), nil
}

// valuesTable makes a row of each value; what has a comment is a value, so a map may be one.
func valuesTable(text []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", err
	}
	var out bytes.Buffer
	out.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
	err := rows(&out, "", document.Content[0])
	return out.String(), err
}

func rows(out *bytes.Buffer, prefix string, node *yaml.Node) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		path := prefix + key.Value
		// A comment at the head of the file, with an empty line after it, is not the first key's.
		comment := key.HeadComment[strings.LastIndex(key.HeadComment, "\n\n")+1:]
		if comment == "" {
			if value.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: %s has no comment", key.Line, path)
			}
			if err := rows(out, path+".", value); err != nil {
				return err
			}
			continue
		}
		var words []string
		for line := range strings.Lines(comment) {
			words = append(words, strings.TrimSpace(strings.TrimLeft(line, "# ")))
		}
		shown, err := yaml.Marshal(plain(value))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", path, strings.TrimSpace(string(shown)), strings.Join(words, " "))
	}
	return nil
}

// plain is the value without comments, on one line.
func plain(value *yaml.Node) *yaml.Node {
	bare := *value
	bare.HeadComment, bare.LineComment, bare.FootComment = "", "", ""
	if len(bare.Content) > 0 {
		bare.Style = yaml.FlowStyle
	}
	return &bare
}
