// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/status"
)

func newStatus(f *Factory) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of Liqo in this cluster",
		Long:    "Show the status of Liqo in this cluster. The exit code is 1 if a check fails. With --verbose, it shows more.",
		Example: f.text("  {{name}} status\n  {{name}} status peer milan"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			s, err := status.Read(cmd.Context(), c, f.namespace())
			if err != nil {
				return err
			}
			if err := show(f.streams.Out, format, s, func() []box { return localBoxes(s, f.verbose) }); err != nil {
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
	cmd.PersistentFlags().StringVarP(&format, "output", "o", format, "Print the status for programs: "+strings.Join(formats, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(newStatusPeer(f, &format))
	return cmd
}

func newStatusPeer(f *Factory, format *string) *cobra.Command {
	return &cobra.Command{
		Use: "peer [NAME...]", Aliases: []string{"peers"}, Short: "Show the status of peerings",
		Long:    "Show the status of the peerings with these clusters; without a name, of all peerings. With --verbose, it shows more.",
		Example: f.text("  {{name}} status peer\n  {{name}} status peer milan --verbose"),
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: f.completePeers(0),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := checkFormat(*format); err != nil {
				return err
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			peers, err := status.Peers(cmd.Context(), c, names)
			if err != nil {
				return err
			}
			if err := show(f.streams.Out, *format, peers, func() []box { return []box{peerBox(peers, f.verbose)} }); err != nil {
				return err
			}
			var missing []string
			for _, peer := range peers {
				if !peer.Found {
					missing = append(missing, peer.Name)
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("this cluster has no peer called %s; `%s status peer` shows those it has", strings.Join(missing, ", "), f.name)
			}
			return nil
		},
	}
}
