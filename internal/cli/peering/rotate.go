// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/rotate"
	"liqo.io/liqo/internal/cli/access"
)

// rotateTimeout bounds the wait for providers.
const rotateTimeout = time.Minute

func NewRotate(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace secrets of this cluster without interrupting peerings", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "token", Short: "Replace the token of first contact, and withdraw all tokens that were issued",
		Long: f.Text("Replace the token with which clusters make first contact, and withdraw all tokens that `{{name}} generate peer-command` issued.\n\n" +
			"Peer commands that were printed before stop working. Clusters that are peers already prove themselves with their keys, and notice nothing."),
		Example: f.Text("  {{name}} rotate token"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			if err := rotate.Token(cmd.Context(), c, f.Namespace()); err != nil {
				return err
			}
			f.Printer.Done("Tokens of first contact replaced")
			return nil
		},
	})
	o := rotate.IdentityOptions{}
	identity := &cobra.Command{
		Use: "identity", Short: "Replace the keys with which this cluster proves itself to its peers",
		Long: f.Text("Replace the keys with which this cluster proves itself to its peers: that which all know it by, and those for its providers.\n\n" +
			"Peerings go on: the old keys sign the new ones. Providers learn them at once, clusters that use this one at their next renewal,\n" +
			"within half an hour. Peer commands that were printed before stop working."),
		Example: f.Text("  {{name}} rotate identity"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			return rotate.Identity(cmd.Context(), c, f.Namespace(), o, f.Printer)
		},
	}
	access.TimeoutFlag(identity, &o.Timeout, rotateTimeout)
	identity.Flags().BoolVar(&o.Force, "force", false, "Replace the keys although they were replaced less than an hour ago: peers that do not know the "+
		"present ones have to peer again")
	cmd.AddCommand(identity)
	return cmd
}
