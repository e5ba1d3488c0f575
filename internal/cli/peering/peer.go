// SPDX-License-Identifier: Apache-2.0

// Package peering is the commands about other clusters, a file each: generate and rotate, peer and unpeer, accept. It must not know
// how an action works. Its proof are token_test.go, and peering_test.go of package cli.
package peering

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/cli/access"
)

// TokenVariable holds the token for users who do not want it in the arguments of a process, where other users can read it.
const TokenVariable = "LIQO_AUTH_TOKEN"

// maxToken is a limit far above the longest token.
const maxToken = 64 << 10

const peerTimeout = 2 * time.Minute

func NewPeer(f *access.Factory) *cobra.Command {
	o := peer.Options{}
	cmd := &cobra.Command{
		Use: "peer NAME", Short: "Use the resources of another cluster",
		Long: f.Text("Use the resources of another cluster, which becomes a virtual node of this one.\n\n" +
			"`{{name}} peer NAME` is for a cluster that this one knows: it restores the peering after `{{name}} unpeer NAME`, and lets this\n" +
			"cluster use one that uses it.\n" +
			"For any other cluster, run `{{name}} generate peer-command` there, and the printed command here, or peer in-band."),
		Example: f.Text("  {{name}} peer milan"),
		Args:    oneName, ValidArgsFunction: f.CompletePeers(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			o.Name, o.Namespace = args[0], f.Namespace()
			return peer.Enable(cmd.Context(), c, o, f.Printer)
		},
	}
	access.TimeoutFlag(cmd, &o.Timeout, peerTimeout)
	cmd.PersistentFlags().StringSliceVar(&o.Networks.Keep, "keep-networks", nil,
		"Networks that the other cluster announces, and this one uses as they are; nothing else that this cluster reaches may have an address in them "+
			"(in-band: of both clusters)")
	cmd.PersistentFlags().StringSliceVar(&o.Networks.Force, "force-network", nil,
		"The same for a network that nodes of this cluster reach by routes of their own: they reach the other cluster there instead")
	cmd.PersistentFlags().BoolVar(&o.Labels.Accept, "accept-labels", true,
		"Cluster selectors may use the labels that the other cluster presents at the first peering; the command shows them (in-band: in both clusters)")
	cmd.AddCommand(newPeerOutOfBand(f, &o), newPeerInBand(f, &o))
	return cmd
}

func newPeerOutOfBand(f *access.Factory, o *peer.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "out-of-band NAME", Aliases: []string{"oob"}, Short: "Use the resources of a cluster whose API server can be reached directly",
		Long: f.Text("Use the resources of a cluster whose API server and authentication service can be reached directly.\n\n" +
			"`{{name}} generate peer-command`, run in that cluster, prints this command with all its flags. NAME is the name of the\n" +
			"cluster here; it may differ from its own name. The command checks everything before it changes anything.\n\n" +
			"Other users of this machine can read command lines. So the token may also come from the standard input\n" +
			"(--auth-token -) or from the environment variable " + TokenVariable + "."),
		Example: f.Text(`  {{name}} peer out-of-band milan --auth-url https://192.0.2.10:30443 --cluster-id ID --auth-token TOKEN

  # The token from a file
  {{name}} peer out-of-band milan --auth-url https://192.0.2.10:30443 --cluster-id ID --auth-token - < token`),
		Args: oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := readToken(o.Token, cmd.Flags().Changed("auth-token"), f.Streams.In)
			if err != nil {
				return err
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			wanted := *o
			wanted.Name, wanted.Namespace, wanted.Token = args[0], f.Namespace(), token
			return peer.OutOfBand(cmd.Context(), c, wanted, f.Printer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.AuthURL, "auth-url", "", "URL of the other cluster's authentication service")
	flags.StringVar(&o.ClusterID, "cluster-id", "", "ID of the other cluster")
	flags.StringVar(&o.Token, "auth-token", "", "Token of the other cluster; - reads it from the standard input (default: the variable "+TokenVariable+")")
	flags.BoolVar(&o.InsecureSkipProviderVerify, "insecure-skip-provider-verify", false,
		"Accept a token without the fingerprint of the other cluster's key, and trust the key of the cluster that answers first")
	flags.BoolVar(&o.SkipPreflight, "skip-preflight", false, "Only warn if this machine cannot reach the other cluster; the clusters must reach each other")
	for _, name := range []string{"auth-url", "cluster-id"} {
		_ = cmd.MarkFlagRequired(name)
	}
	for _, name := range []string{"auth-url", "cluster-id", "auth-token"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// readToken takes the token from the flag, from the standard input if the flag is "-", otherwise from the environment.
func readToken(flag string, set bool, in io.Reader) (string, error) {
	switch {
	case set && flag != "-":
		return flag, nil
	case set:
		text, err := io.ReadAll(io.LimitReader(in, maxToken))
		if err != nil {
			return "", fmt.Errorf("read the token from the standard input: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	token, ok := os.LookupEnv(TokenVariable)
	if !ok {
		return "", errors.New("the token of the other cluster is missing: add --auth-token TOKEN, or --auth-token - to read it from the standard input, " +
			"or set " + TokenVariable + "; run `generate peer-command` in the other cluster to print it")
	}
	return strings.TrimSpace(token), nil
}

func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the name of one cluster, got %d arguments", len(args))
	}
	return nil
}
