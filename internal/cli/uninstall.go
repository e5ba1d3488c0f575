// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/install"
)

func newUninstall(f *Factory) *cobra.Command {
	o := install.UninstallOptions{}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove Liqo from a cluster",
		Long: "Remove Liqo from a cluster. The command refuses while the cluster has a peering or an offloaded namespace, and lists them.\n" +
			"It waits for those that are ending already, and names what holds them.\n" +
			"Resource definitions and namespaces stay, unless --purge is given.",
		Example: f.text("  {{name}} uninstall\n  {{name}} uninstall --purge"),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := f.cluster()
			if err != nil {
				return err
			}
			o.Namespace = f.namespace()
			return install.Uninstall(cmd.Context(), cluster, o, f.printer)
		},
	}
	cmd.Flags().BoolVar(&o.Purge, "purge", false, "Also remove resource definitions and namespaces")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Minute, "Maximum duration of the command")
	return cmd
}
