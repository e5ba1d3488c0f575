// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action"
)

func newRotate(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace secrets of this cluster without interrupting peerings", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "token", Short: "Replace the token of first contact, and withdraw all tokens that were issued",
		Long: f.text("Replace the token with which clusters make first contact, and withdraw all tokens that `{{name}} generate peer-command` issued.\n\n" +
			"Peer commands that were printed before stop working. Clusters that are peers already prove themselves with their keys, and notice nothing."),
		Example: f.text("  {{name}} rotate token"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			if err := action.RotateToken(cmd.Context(), c, f.namespace()); err != nil {
				return err
			}
			f.printer.Done("Tokens of first contact replaced")
			return nil
		},
	})
	return cmd
}
