// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"liqo.io/liqo/internal/cli"
	"liqo.io/liqo/internal/kube/metric"
	_ "liqo.io/liqo/internal/network/agent/gateway" // declares metrics, as do the following
	_ "liqo.io/liqo/internal/offloading/nameserver"
	_ "liqo.io/liqo/internal/offloading/reflection/engine"
	_ "liqo.io/liqo/internal/peering/trust"
)

// reference is the folder of the pages that list everything of one sort.
const reference = "docs/reference"

// page writes a page of the reference, and from what it is made.
func page(name, title, from, text string) error {
	if err := os.MkdirAll(reference, 0o755); err != nil {
		return err
	}
	head := fmt.Sprintf("# %s\n\n<!-- made from %s by `make generate` -->\n\n", title, from)
	return os.WriteFile(filepath.Join(reference, name), []byte(head+text), 0o644)
}

// cell is text as a cell of a table has it: on one line, with bars that do not end it.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// code marks each name as code.
func code(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func metricsPage() error {
	return page("metrics.md", "Metrics", "the rows in the code, see internal/kube/metric", metricsText(metric.Rows()))
}

func metricsText(rows []metric.Row) string {
	var out bytes.Buffer
	out.WriteString(`What Liqo measures itself.
Names, types and labels stay as they are.
The processes below serve their metrics as text at ` + "`/metrics`" + `, together with those of Go, of the process, and of the libraries of Kubernetes.
The controller manager always does so; gateways, virtual kubelets and ` + "`liqo-dns`" + ` with the values ` +
		"`gateway.metrics`, `virtualKubelet.metrics` and `dns.metrics`" + ` of [the chart](values.md).
A counter without events has no series, unless the page of its feature promises one.

| Metric | Type | Labels | Processes | Meaning |
|---|---|---|---|---|
`)
	for _, row := range rows {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", row.Name, row.Type, code(row.Labels), strings.Join(row.Roles, ", "), cell(row.Help))
	}
	out.WriteString(`
## Panels

A query for each metric, for a panel of a dashboard.
Units are the names that Grafana has for them.

| Panel | Unit | Query |
|---|---|---|
`)
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s | %s | `%s` |\n", row.Panel.Title, row.Panel.Unit, cell(row.Panel.Query))
	}
	return out.String()
}

func commandsPage() error {
	root := cli.NewRoot(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}}, "liqoctl")
	root.InitDefaultHelpFlag()
	return page("liqoctl.md", "liqoctl", "the commands in the code, see internal/cli", commandsText(root))
}

func commandsText(root *cobra.Command) string {
	var out bytes.Buffer
	out.WriteString(
		"Every command of `liqoctl`, as `liqoctl COMMAND --help` prints it.\nThe program is also a plugin of kubectl, with the name `kubectl-liqo`.\n\n",
	)
	var each func(*cobra.Command)
	each = func(command *cobra.Command) {
		if command.Hidden {
			return
		}
		fmt.Fprintf(
			&out, "## %s\n\n%s\n\n```\n%s\n```\n\n", command.CommandPath(),
			strings.ReplaceAll(strings.TrimSpace(first(command.Long, command.Short)), "\n  ", "\n    "), command.UseLine(),
		)
		if command.Example != "" {
			fmt.Fprintf(&out, "Examples:\n\n```sh\n%s\n```\n\n", strings.TrimRight(unindented(command.Example), "\n"))
		}
		if below := available(command); len(below) > 0 && command != root {
			fmt.Fprintf(&out, "Commands: %s.\n\n", code(below))
		}
		own := command.NonInheritedFlags()
		if command == root {
			own = command.PersistentFlags()
		}
		var flags []string
		own.VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Name != "help" {
				flags = append(flags, flagRow(flag))
			}
		})
		if len(flags) > 0 {
			if command == root {
				out.WriteString("Flags of all commands:\n\n")
			}
			fmt.Fprintf(&out, "| Flag | Default | Meaning |\n|---|---|---|\n%s\n", strings.Join(flags, ""))
		}
		for _, below := range command.Commands() {
			each(below)
		}
	}
	each(root)
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func flagRow(flag *pflag.Flag) string {
	kind, usage := pflag.UnquoteUsage(flag)
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand + ", " + name
	}
	value := flag.DefValue
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		value = strings.Replace(value, home, "$HOME", 1)
	}
	if slices.Contains([]string{"", "[]", "false"}, value) {
		value = ""
	} else {
		value = "`" + value + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+kind), cell(value), cell(usage))
}

func available(command *cobra.Command) (names []string) {
	for _, below := range command.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.CommandPath())
		}
	}
	return names
}

func first(texts ...string) string {
	return texts[slices.IndexFunc(texts, func(text string) bool { return text != "" })]
}

// unindented removes the two spaces before each line of an example.
func unindented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimPrefix(line, "  "))
	}
	return out.String()
}
