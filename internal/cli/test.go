// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"liqo.io/liqo/internal/action/networktest"
	"liqo.io/liqo/internal/network/matrix"
)

func newTest(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test", Short: "Test the parts of Liqo",
		Example: f.text("  {{name}} test network --remote-context milan"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTestNetwork(f))
	return cmd
}

func newTestNetwork(f *Factory) *cobra.Command {
	o := networktest.Options{}
	var remote *second
	format := ""
	cmd := &cobra.Command{
		Use: "network", Short: "Test every path of a packet between two clusters",
		Long: "Test every path of a packet between two clusters, in both directions: from pods and nodes, to pods, Services and node ports,\n" +
			"over TCP and UDP, with a single byte and with many; and in each cluster, the addresses that the other one shows for its pods. Each request must reach the right pod from the right source address.\n\n" +
			"The command creates a namespace in both clusters with two small pods on each node and one more, which run the image of Liqo. It calls the\n" +
			"pods through the API servers, and deletes the namespaces at the end. The exit code is 1 if a path does not work.",
		Example: f.text("  {{name}} test network --context rome --remote-context milan\n  {{name}} test network --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --verbose"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if o.Bytes < 1 || o.Bytes > matrix.MaxBytes {
				return fmt.Errorf("--bytes %d: want 1 to %d", o.Bytes, matrix.MaxBytes)
			}
			if o.Timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be positive", o.Timeout)
			}
			var err error
			if o.Local, err = testCluster(f.flags, f.namespace()); err != nil {
				return fmt.Errorf("(local) %w", err)
			}
			if o.Remote, err = testCluster(remote.flags, remote.namespace); err != nil {
				return fmt.Errorf("(remote) %w", err)
			}
			progress := f.printer
			if format != "" {
				progress = progress.quietOut()
			}
			report, err := networktest.Run(cmd.Context(), o, progress)
			progress.Stop()
			if err != nil {
				return err
			}
			if err := f.show(format, report, func() []box { return []box{matrixBox(report, f.verbose)} }); err != nil {
				return err
			}
			return failedPaths(report)
		},
	}
	flags := cmd.Flags()
	remote = f.second(flags)
	flags.Int64Var(&o.Bytes, "bytes", 10<<20, "Size of the large exchange")
	flags.IntVar(&o.MaxNodes, "max-nodes", 5, "Number of nodes of each cluster that take part; 0 for all")
	flags.BoolVar(&o.Keep, "keep", false, "Do not delete the namespaces and pods of the test")
	timeoutFlag(cmd, &o.Timeout, 10*time.Minute)
	flags.StringVarP(&format, "output", "o", format, "Print the results for programs: "+strings.Join(formats, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func testCluster(flags *genericclioptions.ConfigFlags, namespace string) (cluster networktest.Cluster, err error) {
	config, err := configOf(flags)
	if err != nil {
		return cluster, err
	}
	cluster.Namespace = namespace
	if cluster.Client, err = clientOf(config); err != nil {
		return cluster, err
	}
	cluster.Asker, err = networktest.NewAsker(config)
	return cluster, err
}

// failedPaths is the error of a test in which paths failed.
func failedPaths(report networktest.Report) error {
	if report.Failed == 0 {
		return nil
	}
	var lines []string
	for _, r := range report.Results {
		if r.Error != "" {
			lines = append(lines, fmt.Sprintf("%s, %s, %s, %s %s to %s %s (%s): %s", r.Case, r.Protocol, r.Size(), r.FromCluster, r.From, r.ToCluster, r.To, r.Target, r.Error))
		}
	}
	return fmt.Errorf("%d of %d ways do not work:\n- %s", report.Failed, len(report.Results), strings.Join(lines, "\n- "))
}

// columns of the table.
var columns = []string{"From", "To", "Protocol", "Size", "Result", "Seen as"}

// matrixBox is the table of a test: a line for each path if verbose, otherwise one for each kind of path and direction.
func matrixBox(report networktest.Report, verbose bool) box {
	var w textWriter
	title := ""
	for _, group := range groups(report.Results, verbose) {
		if group.title != title {
			title = group.title
			w.depth = 0
			w.line("%s", title)
			w.depth = 1
		}
		width := make([]int, len(columns))
		for _, row := range append([][]string{columns}, group.rows...) {
			for i, cell := range row {
				width[i] = max(width[i], utf8.RuneCountInString(cell))
			}
		}
		for _, row := range append([][]string{columns}, group.rows...) {
			line := ""
			for i, cell := range row {
				line += fmt.Sprintf("%-*s  ", width[i], cell)
			}
			w.line("%s", strings.TrimRight(line, " "))
		}
	}
	return box{"Network between " + report.Local + " and " + report.Remote, w.lines}
}

// group is a case with its rows.
type group struct {
	title string
	rows  [][]string
}

// groups returns the results by case, in the order of the results.
func groups(results []networktest.Result, verbose bool) (all []*group) {
	type key struct{ title, from, to, protocol, size string }
	type sum struct {
		good, all int
		sources   []string
	}
	sums := map[key]*sum{}
	var order []key
	for _, r := range results {
		k := key{r.Case, r.FromCluster, r.ToCluster, r.Protocol, r.Size()}
		if verbose {
			k.from, k.to = r.FromCluster+" "+r.From, r.ToCluster+" "+r.To
		}
		if sums[k] == nil {
			sums[k] = &sum{}
			order = append(order, k)
		}
		s := sums[k]
		s.all++
		if r.Error == "" {
			s.good++
		}
		if r.Source != "" && !slices.Contains(s.sources, r.Source) {
			s.sources = append(s.sources, r.Source)
		}
	}
	for _, k := range order {
		s := sums[k]
		i := slices.IndexFunc(all, func(g *group) bool { return g.title == k.title })
		if i < 0 {
			i, all = len(all), append(all, &group{title: k.title})
		}
		state := "✓"
		if s.good < s.all {
			state = "✗"
		}
		if !verbose {
			state = fmt.Sprintf("%s %d/%d", state, s.good, s.all)
		}
		slices.Sort(s.sources)
		all[i].rows = append(all[i].rows, []string{k.from, k.to, k.protocol, k.size, state, strings.Join(s.sources, ", ")})
	}
	return all
}
