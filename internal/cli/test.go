// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"liqo.io/liqo/internal/action/networktest"
	"liqo.io/liqo/internal/cli/access"
	"liqo.io/liqo/internal/cli/boxes"
	"liqo.io/liqo/internal/cli/output"
	"liqo.io/liqo/internal/network/matrix"
)

func newTest(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test", Short: "Test the parts of Liqo",
		Example: f.Text("  {{name}} test network --remote-context milan"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTestNetwork(f))
	return cmd
}

func newTestNetwork(f *access.Factory) *cobra.Command {
	o := networktest.Options{}
	var remote *access.Other
	format := ""
	cmd := &cobra.Command{
		Use: "network", Short: "Test every path of a packet between two clusters",
		Long: "Test every path of a packet between two clusters, in both directions: from pods and nodes, to pods, Services and node ports,\n" +
			"over TCP and UDP, with a single byte and with many; and in each cluster, the addresses that the other one shows for its pods. Each request must " +
			"reach the right pod from the right source address.\n\n" +
			"The command creates a namespace in both clusters with two small pods on each node and one more, which run the image of Liqo. It calls the\n" +
			"pods through the API servers, and deletes the namespaces at the end. The exit code is 1 if a path does not work.",
		Example: f.Text("  {{name}} test network --context rome --remote-context milan\n  {{name}} test network --kubeconfig rome.yaml --remote-kubeconfig " +
			"milan.yaml --verbose"),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.CheckFormat(format); err != nil {
				return err
			}
			if o.Bytes < 1 || o.Bytes > matrix.MaxBytes {
				return fmt.Errorf("--bytes %d: want 1 to %d", o.Bytes, matrix.MaxBytes)
			}
			if o.Timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be positive", o.Timeout)
			}
			var err error
			if o.Local, err = testCluster(f.Flags, f.Namespace()); err != nil {
				return fmt.Errorf("(local) %w", err)
			}
			if o.Remote, err = testCluster(remote.Flags, remote.Namespace); err != nil {
				return fmt.Errorf("(remote) %w", err)
			}
			progress := f.Printer
			if format != "" {
				progress = progress.QuietOut()
			}
			report, err := networktest.Run(cmd.Context(), o, progress)
			progress.Stop()
			if err != nil {
				return err
			}
			if err := output.Show(f.Streams.Out, format, report, func() []output.Box { return []output.Box{boxes.Network(report, f.Verbose)} }); err != nil {
				return err
			}
			return boxes.FailedPaths(report)
		},
	}
	flags := cmd.Flags()
	remote = f.AddRemote(flags)
	flags.Int64Var(&o.Bytes, "bytes", 10<<20, "Size of the large exchange")
	flags.IntVar(&o.MaxNodes, "max-nodes", 5, "Number of nodes of each cluster that take part; 0 for all")
	flags.BoolVar(&o.Keep, "keep", false, "Do not delete the namespaces and pods of the test")
	access.TimeoutFlag(cmd, &o.Timeout, 10*time.Minute)
	flags.StringVarP(&format, "output", "o", format, "Print the results for programs: "+strings.Join(output.Formats, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func testCluster(flags *genericclioptions.ConfigFlags, namespace string) (cluster networktest.Cluster, err error) {
	config, err := access.Config(flags)
	if err != nil {
		return cluster, err
	}
	cluster.Namespace = namespace
	if cluster.Client, err = access.Client(config); err != nil {
		return cluster, err
	}
	cluster.Asker, err = networktest.NewAsker(config)
	return cluster, err
}
