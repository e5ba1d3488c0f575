// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action"
)

func newUnpeer(f *Factory) *cobra.Command {
	o := action.UnpeerOptions{}
	run := func(act func(context.Context, client.WithWatch, action.UnpeerOptions, action.Progress) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			o.Name = args[0]
			return act(cmd.Context(), c, o, f.printer)
		}
	}
	cmd := &cobra.Command{
		Use: "unpeer NAME", Short: "Stop using the resources of another cluster",
		Long: f.text("Stop using the resources of another cluster: its virtual node goes away, and what ran there is started elsewhere.\n\n" +
			"`{{name}} unpeer NAME` keeps the ForeignCluster, so that `{{name}} peer NAME` brings the peering back."),
		Example: f.text("  {{name}} unpeer milan"),
		Args:    oneName, ValidArgsFunction: f.completePeers(1),
		RunE: run(action.Unpeer),
	}
	timeoutFlag(cmd, &o.Timeout, peerTimeout)
	cmd.PersistentFlags().BoolVar(&o.Force, "force", false, "Wait for nothing in the other cluster: for one that will not come back")
	cmd.AddCommand(&cobra.Command{
		Use: "out-of-band NAME", Aliases: []string{"oob"}, Short: "Stop using the resources of another cluster, and forget it",
		Long: f.text("Stop using the resources of another cluster, and forget it.\n\n" +
			"If that one uses this one, it is not forgotten: run the command there, too. If that is all it does, it loses its access\n" +
			"and what it runs here."),
		Example: f.text("  {{name}} unpeer out-of-band milan"),
		Args:    oneName, ValidArgsFunction: f.completePeers(1),
		RunE: run(action.UnpeerOutOfBand),
	}, newInBand("End a peering through the network between the clusters"))
	return cmd
}
