// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/install"
	"liqo.io/liqo/internal/cli/access"
)

func newUninstall(f *access.Factory) *cobra.Command {
	o := install.UninstallOptions{}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove Liqo from a cluster",
		Long: "Remove Liqo from a cluster. The command refuses while the cluster has a peering or an offloaded namespace, and lists them.\n" +
			"It waits for those that are ending already, and names what holds them.\n" +
			"Resource definitions and namespaces stay, unless --purge is given.",
		Example: f.Text("  {{name}} uninstall\n  {{name}} uninstall --purge"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := f.Cluster()
			if err != nil {
				return err
			}
			o.Namespace = f.Namespace()
			return install.Uninstall(cmd.Context(), cluster, o, f.Printer)
		},
	}
	cmd.Flags().BoolVar(&o.Purge, "purge", false, "Also remove resource definitions and namespaces")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Minute, "Maximum duration of the command")
	return cmd
}
