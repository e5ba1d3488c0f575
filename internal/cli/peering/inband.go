// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/action/unpeer"
	"liqo.io/liqo/internal/cli/access"
)

// invitationVariable holds the invitation for users who do not want it in the arguments of a process.
const invitationVariable = "LIQO_INVITATION"

func newPeerInBand(f *access.Factory, common *peer.Options) *cobra.Command {
	var bidirectional bool
	var invited struct{ clusterID, token, invitation string }
	cmd := &cobra.Command{
		Use: "in-band [NAME]", Aliases: []string{"ib"}, Short: "Use the resources of a cluster of which only the gateway can be reached",
		Long: f.Text("Use the resources of a cluster of which only the gateway can be reached: its API server and its authentication service are\n" +
			"used through the tunnel between the clusters. It is enough if one of the two gateways reaches the other.\n\n" +
			"The command needs access to both clusters: it pins the key of each in the other one, and exchanges their networks until the\n" +
			"tunnel is up. It checks everything before it changes anything, and can be repeated. NAME is the name of the other cluster\n" +
			"here, by default its own. With --bidirectional, the other cluster uses this one as well.\n\n" +
			"Without access to the other cluster, run `{{name}} generate peer-command --in-band` there, and the printed command here. Token and\n" +
			"invitation may also come from the environment variables " + TokenVariable + " and " + invitationVariable + "."),
		Example: f.Text("  {{name}} peer in-band --context rome --remote-context milan\n  {{name}} peer in-band --kubeconfig rome.yaml --remote-kubeconfig " +
			"milan.yaml --bidirectional"),
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.CompletePeers(1),
	}
	remote := f.AddRemote(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if text := cmp.Or(invited.invitation, os.Getenv(invitationVariable)); text != "" {
			if len(args) == 0 || invited.clusterID == "" || access.RemoteChosen(cmd.Flags()) || bidirectional {
				return errors.New("an invitation goes with NAME, --cluster-id and --auth-token, and without flags for the other cluster; run the command as it was printed")
			}
			o := peer.Options{
				Name: args[0], Namespace: f.Namespace(), Timeout: common.Timeout, ClusterID: invited.clusterID, Networks: common.Networks,
				Labels: common.Labels,
			}
			if o.Token, err = readToken(invited.token, cmd.Flags().Changed("auth-token"), f.Streams.In); err != nil {
				return err
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			return peer.Invited(cmd.Context(), c, o, text, f.Printer)
		}
		if cmd.Flags().Changed("cluster-id") || cmd.Flags().Changed("auth-token") {
			return fmt.Errorf("--cluster-id and --auth-token go with an invitation, and there is none: add --invitation, or set %s, which sudo drops",
				invitationVariable)
		}
		o := peer.InBandOptions{Bidirectional: bidirectional, Timeout: common.Timeout, Networks: common.Networks, Labels: common.Labels}
		if len(args) > 0 {
			o.Name = args[0]
		}
		if o.Local, o.Remote, err = f.Both(remote); err != nil {
			return err
		}
		return peer.InBand(cmd.Context(), o, f.Printer)
	}
	cmd.Flags().StringVar(&invited.invitation, "invitation", "", "Invitation of the other cluster (default: the variable "+invitationVariable+")")
	cmd.Flags().StringVar(&invited.clusterID, "cluster-id", "", "ID of the other cluster, with an invitation")
	cmd.Flags().StringVar(&invited.token, "auth-token", "", "Token of the other cluster, with an invitation; - reads it from the standard input (default: "+
		"the variable "+TokenVariable+")")
	for _, name := range []string{"invitation", "cluster-id", "auth-token"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	cmd.Flags().BoolVar(&bidirectional, "bidirectional", false, "The other cluster uses the resources of this one as well")
	return cmd
}

func newUnpeerInBand(f *access.Factory, common *unpeer.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "in-band [NAME]", Aliases: []string{"ib"}, Short: "End a peering through the tunnel, in both clusters",
		Long: f.Text("End a peering through the tunnel in both clusters: both directions, if both are there, then the tunnel.\n\n" +
			"`{{name}} unpeer NAME` ends one direction only. If the other cluster will not come back, leave the flags --remote-... away\n" +
			"and add --force: then only this cluster is changed. The same holds, without --force, for a peering by invitation."),
		Example: f.Text("  {{name}} unpeer in-band --context rome --remote-context milan"),
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: f.CompletePeers(1),
	}
	remote := f.AddRemote(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o := unpeer.InBandOptions{Timeout: common.Timeout, Force: common.Force}
		if len(args) > 0 {
			o.Name = args[0]
		}
		if !access.RemoteChosen(cmd.Flags()) {
			o.Local.Namespace = f.Namespace()
			if o.Local.Client, err = f.Client(); err != nil {
				return err
			}
			switch alone, err := unpeer.Alone(cmd.Context(), o); {
			case err != nil:
				return err
			case alone:
				return unpeer.InBand(cmd.Context(), o, f.Printer)
			}
		}
		if o.Local, o.Remote, err = f.Both(remote); err != nil {
			return err
		}
		return unpeer.InBand(cmd.Context(), o, f.Printer)
	}
	return cmd
}
