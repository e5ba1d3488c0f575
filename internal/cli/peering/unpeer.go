// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/unpeer"
	"liqo.io/liqo/internal/cli/access"
)

func NewUnpeer(f *access.Factory) *cobra.Command {
	o := unpeer.Options{}
	run := func(act func(context.Context, client.WithWatch, unpeer.Options, action.Progress) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			o.Name = args[0]
			return act(cmd.Context(), c, o, f.Printer)
		}
	}
	cmd := &cobra.Command{
		Use: "unpeer NAME", Short: "Stop using the resources of another cluster",
		Long: f.Text("Stop using the resources of another cluster: its virtual node is deleted, and controllers start its pods elsewhere.\n\n" +
			"`{{name}} unpeer NAME` keeps the ForeignCluster, so that `{{name}} peer NAME` can restore the peering."),
		Example: f.Text("  {{name}} unpeer milan"),
		Args:    oneName, ValidArgsFunction: f.CompletePeers(1),
		RunE: run(unpeer.Disable),
	}
	access.TimeoutFlag(cmd, &o.Timeout, peerTimeout)
	cmd.PersistentFlags().BoolVar(&o.Force, "force", false, "Do not wait for the other cluster, because it will not come back")
	cmd.AddCommand(&cobra.Command{
		Use: "out-of-band NAME", Aliases: []string{"oob"}, Short: "Stop using the resources of another cluster, and forget it",
		Long: f.Text("Stop using the resources of another cluster, and delete its ForeignCluster.\n\n" +
			"If both clusters use each other, the ForeignCluster stays: run the command in the other cluster also. If only the other\n" +
			"cluster uses this one, it loses its access and its pods here."),
		Example: f.Text("  {{name}} unpeer out-of-band milan"),
		Args:    oneName, ValidArgsFunction: f.CompletePeers(1),
		RunE: run(unpeer.OutOfBand),
	}, newUnpeerInBand(f, &o))
	return cmd
}
