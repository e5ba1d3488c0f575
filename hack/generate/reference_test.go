// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/kube/metric"
)

// TestMetricsPage: a row has its metric and its panel, and bars in a text do not end a cell.
func TestMetricsPage(t *testing.T) {
	text := metricsText([]metric.Row{{
		Name: "liqo_x_total", Type: metric.Counter, Help: "One|two.", Labels: []string{"a", "b"}, Roles: []string{"dns"},
		Panel: metric.Panel{Title: "X", Query: "rate(liqo_x_total[5m])", Unit: "ops"},
	}})
	for _, row := range []string{"| `liqo_x_total` | counter | `a`, `b` | dns | One\\|two. |\n", "| X | ops | `rate(liqo_x_total[5m])` |\n"} {
		if !strings.Contains(text, row) {
			t.Errorf("no %q in\n%s", row, text)
		}
	}
	for _, row := range metric.Rows() {
		if row.Help == "" || len(row.Roles) == 0 || row.Panel.Title == "" || row.Panel.Unit == "" || !strings.Contains(row.Panel.Query, row.Name) {
			t.Errorf("the row is not complete: %+v", row)
		}
	}
}

// TestCommandsPage: a command has its usage, its own flags and its examples; what is hidden is left out.
func TestCommandsPage(t *testing.T) {
	root := &cobra.Command{Use: "x", Short: "Do x"}
	root.PersistentFlags().Bool("all", false, "Everywhere")
	below := &cobra.Command{Use: "do NAME", Short: "Do it", Long: "Do it:\n\n  now", Example: "  x do a\n", Run: func(*cobra.Command, []string) {}}
	below.Flags().StringP("size", "s", "5", "How `large`")
	root.AddCommand(below, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	want := "## x\n\nDo x\n\n```\nx\n```\n\nFlags of all commands:\n\n| Flag | Default | Meaning |\n|---|---|---|\n| `--all` |  | Everywhere |\n\n" +
		"## x do\n\nDo it:\n\n    now\n\n```\nx do NAME [flags]\n```\n\nExamples:\n\n```sh\nx do a\n```\n\n" +
		"| Flag | Default | Meaning |\n|---|---|---|\n| `-s, --size large` | `5` | How large |\n"
	_, have, _ := strings.Cut(commandsText(root), "\n\n")
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// TestAPIPage: a field has its path, type, default and rules; what is below a free field is not shown.
func TestAPIPage(t *testing.T) {
	var kind apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(`
spec:
  group: x.liqo.io
  names: {kind: Thing}
  scope: Cluster
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: Thing is one.
        required: [spec]
        properties:
          spec:
            type: object
            required: [ports]
            properties:
              ports: {type: array, items: {type: object, properties: {number: {type: integer, default: 5}}}}
              mode: {type: string, enum: [A, B], x-kubernetes-validations: [{rule: x, message: it stays}]}
              pod: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {containers: {type: array, items: {type: string}}}}
`), &kind); err != nil {
		t.Fatal(err)
	}
	_, have, _ := strings.Cut(apiText([]apiextensionsv1.CustomResourceDefinition{kind}), "## Thing\n\n")
	want := "| Field | Type | Meaning |\n|---|---|---|\n| `spec` | object, required |  |\n| `spec.mode` | `A`, `B` | Rule: it stays. |\n| " +
		"`spec.pod` | object |  |\n" +
		"| `spec.ports` | list of object, required |  |\n| `spec.ports[].number` | integer, default `5` |  |\n"
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// TestEventsPage: a reason is shown with its comment, and must have one.
func TestEventsPage(t *testing.T) {
	have, err := reasonsText([]byte("package x\n\n// Events of x.\nconst (\n\t// A: it began.\n\tA = \"Began\"\n)\n"))
	if want := "\nEvents of x.\n\n| Name | Meaning |\n|---|---|\n| `Began` | it began. |\n"; err != nil || have != want {
		t.Errorf("%v\n%s", err, have)
	}
	if _, err := reasonsText([]byte("package x\n\n// Events of x.\nconst (\n\tA = \"Began\"\n)\n")); err == nil ||
		!strings.Contains(err.Error(), "A has no comment") {
		t.Errorf("without a comment: %v", err)
	}
}
