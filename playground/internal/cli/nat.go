// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/nat"
)

func (a *app) nat() *cobra.Command {
	c := &cobra.Command{
		Use: "nat", Short: "Put clusters behind a NAT router with one outside address",
		Long: `The nodes of clusters behind a NAT router reach other clusters from its one outside
address, each flow from a random port of its own. Other clusters reach them only in
reply, or at ports that the router forwards. Clusters behind the same router reach each other, and this machine reaches all,
as without it. Faults lie on the same links as before.`,
	}
	c.AddCommand(a.natAdd(), a.natRemove(), a.natRebind(), a.natForward())
	return c
}

func (a *app) natAdd() *cobra.Command {
	return &cobra.Command{
		Use: "add CLUSTER...", Short: "Put clusters behind one new NAT router",
		Example: "  playground nat add rome nice   # both behind the same outside address",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: completeClusters(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			router, err := a.running().AddNAT(cmd.Context(), args)
			if err != nil {
				return err
			}
			a.printf("%s\n", router)
			return nil
		},
	}
}

func (a *app) natRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove CLUSTER", Short: "Remove the NAT router that a cluster is behind, for all clusters behind it",
		Example: "  playground nat remove rome",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeClusters(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.running().RemoveNAT(cmd.Context(), args[0])
		},
	}
}

func (a *app) natRebind() *cobra.Command {
	var readdress bool
	c := &cobra.Command{
		Use: "rebind CLUSTER", Short: "Make the NAT router of a cluster forget its mappings: each flow gets another outside port",
		Example: "  playground nat rebind rome\n  playground nat rebind rome --new-address   # as after the router's own reconnection",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeClusters(1),
		RunE: func(_ *cobra.Command, args []string) error {
			router, err := a.running().RebindNAT(args[0], readdress)
			if err != nil {
				return err
			}
			a.printf("%s\n", router)
			return nil
		},
	}
	c.Flags().BoolVar(&readdress, "new-address", false, "also change the outside address")
	return c
}

func (a *app) natForward() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "forward CLUSTER PORT --to ADDRESS:PORT", Short: "Have the NAT router of a cluster forward a port of its outside address to it",
		Long: `The port is reached from other clusters, and from those behind the same router (a
hairpin). A second forward of the same port replaces the first; all of them end with
the router.`,
		Example: "  playground nat forward rome udp/5871 --to 10.111.1.200:5871",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeClusters(1),
		RunE: func(_ *cobra.Command, args []string) error {
			forward, err := nat.ParseForward(args[1], to)
			if err != nil {
				return err
			}
			forward.Cluster = args[0]
			router, err := a.running().ForwardNAT(forward)
			if err != nil {
				return err
			}
			a.printf("%s, %s\n", router, forward)
			return nil
		},
	}
	c.Flags().StringVar(&to, "to", "", "where the port leads: an address in the node network of the cluster, and a port")
	_ = c.MarkFlagRequired("to") // the flag exists
	return c
}
