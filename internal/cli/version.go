// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/install"
	"liqo.io/liqo/internal/cli/access"
	"liqo.io/liqo/internal/kube/version"
)

func newVersion(f *access.Factory) *cobra.Command {
	client := false
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of the installation", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(f.Streams.Out, "Client version:", version.Version)
			if client {
				return nil
			}
			cluster, err := f.Cluster()
			if err != nil {
				return err
			}
			installed, err := install.InstalledVersion(cmd.Context(), cluster, f.Namespace())
			if err != nil {
				return err
			}
			fmt.Fprintln(f.Streams.Out, "Server version:", installed)
			return nil
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "Show only the version of this program")
	return cmd
}
