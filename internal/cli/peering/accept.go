// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/cli/access"
)

func NewAccept(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "accept", Short: "Agree to what a peer has changed", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}
	cmd.AddCommand(newAcceptLabels(f), accepting(f, &cobra.Command{
		Use: "networks NAME NETWORK...", Short: "Agree to the networks to which a peer has changed",
		Long: f.Text("Agree to the networks to which the peer NAME has changed while others were in use (reason NetworkChanged in `{{name}} status peer NAME`).\n\n" +
			"Each NETWORK must be one that the peer announces now. This cluster then reaches the peer under other addresses; connections end once.\n" +
			"The networks are remapped; to use them as they are, list them in spec.network.podCIDRs of the ForeignCluster instead."),
		Example: f.Text("  {{name}} accept networks milan 10.205.0.0/16"),
	}, "network that it announces, such as milan 10.205.0.0/16", func(ctx context.Context, c client.WithWatch, name string, networks []string,
		p action.Progress,
	) error {
		return accept.Networks(ctx, c, name, networks, p)
	}))
	return cmd
}

func newAcceptLabels(f *access.Factory) *cobra.Command {
	return accepting(f, &cobra.Command{
		Use: "labels NAME KEY=VALUE...", Short: "Let cluster selectors use labels of a peer",
		Long: f.Text("Let the cluster selectors of offloaded namespaces use labels that the peer NAME presents.\n\n" +
			"`{{name}} peer` accepts those that the peer presents at the first peering. What it changes or adds later could attract namespaces, with\n" +
			"their Secrets, so it counts only once it is accepted. Each label must be one that the peer presents now. An earlier value of the same\n" +
			"label is no longer accepted."),
		Example: f.Text("  {{name}} accept labels milan region=B tier=gold"),
	}, "label that it presents, such as milan region=B", accept.Labels)
}

// accepting completes a command that agrees to what a peer announces: its arguments are the name of the peer, and one or more of what.
func accepting(f *access.Factory, cmd *cobra.Command, what string,
	accept func(context.Context, client.WithWatch, string, []string, action.Progress) error,
) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return errors.New("want the name of a peer and at least one " + what)
		}
		return nil
	}
	cmd.ValidArgsFunction = f.CompletePeers(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := f.Client()
		if err != nil {
			return err
		}
		return accept(cmd.Context(), c, args[0], args[1:], f.Printer)
	}
	return cmd
}
