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
		Long: "uninstall refuses as long as the cluster is peered or a namespace offloaded, and says with whom.\n" +
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
	cmd.Flags().BoolVar(&o.Purge, "purge", false, "Remove resource definitions and namespaces, too")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Minute, "How long it may take")
	return cmd
}
