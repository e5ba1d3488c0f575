// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/status"
	"liqo.io/liqo/internal/cli/access"
	"liqo.io/liqo/internal/cli/boxes"
	"liqo.io/liqo/internal/cli/output"
)

func newStatus(f *access.Factory) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of Liqo in this cluster",
		Long:    "Show the status of Liqo in this cluster. The exit code is 1 if a check fails. With --verbose, it shows more.",
		Example: f.Text("  {{name}} status\n  {{name}} status peer milan"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.CheckFormat(format); err != nil {
				return err
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			s, err := status.Read(cmd.Context(), c, f.Namespace())
			if err != nil {
				return err
			}
			if err := output.Show(f.Streams.Out, format, s, func() []output.Box { return boxes.Local(s, f.Verbose) }); err != nil {
				return err
			}
			switch len(s.Problems) {
			case 0:
				return nil
			case 1:
				return fmt.Errorf("a check failed: %s", s.Problems[0])
			}
			return fmt.Errorf("%d checks failed:\n- %s", len(s.Problems), strings.Join(s.Problems, "\n- "))
		},
	}
	cmd.PersistentFlags().StringVarP(&format, "output", "o", format, "Print the status for programs: "+strings.Join(output.Formats, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(newStatusPeer(f, &format))
	return cmd
}

func newStatusPeer(f *access.Factory, format *string) *cobra.Command {
	return &cobra.Command{
		Use: "peer [NAME...]", Aliases: []string{"peers"}, Short: "Show the status of peerings",
		Long:    "Show the status of the peerings with these clusters; without a name, of all peerings. With --verbose, it shows more.",
		Example: f.Text("  {{name}} status peer\n  {{name}} status peer milan --verbose"),
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: f.CompletePeers(0),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := output.CheckFormat(*format); err != nil {
				return err
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			peers, err := status.Peers(cmd.Context(), c, names)
			if err != nil {
				return err
			}
			if err := output.Show(f.Streams.Out, *format, peers, func() []output.Box { return []output.Box{boxes.Peers(peers, f.Verbose)} }); err != nil {
				return err
			}
			var missing []string
			for _, peer := range peers {
				if !peer.Found {
					missing = append(missing, peer.Name)
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("this cluster has no peer called %s; `%s status peer` shows those it has", strings.Join(missing, ", "), f.Name)
			}
			return nil
		},
	}
}
