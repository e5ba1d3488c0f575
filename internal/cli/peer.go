// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/internal/action"
)

// tokenVariable holds the token for those who do not want it in the arguments of a process, where others can read it.
const tokenVariable = "LIQO_AUTH_TOKEN"

// maxToken is much more than the longest token.
const maxToken = 64 << 10

const peerTimeout = 2 * time.Minute

func newPeer(f *Factory) *cobra.Command {
	o := action.PeerOptions{}
	cmd := &cobra.Command{
		Use: "peer NAME", Short: "Use the resources of another cluster",
		Long: f.text("Use the resources of another cluster, which then is a virtual node of this one.\n\n" +
			"`{{name}} peer NAME` is for a cluster that this one knows already, say because it uses this one.\n" +
			"For a new one, run `{{name}} generate peer-command` there, and here what it prints."),
		Example: f.text("  {{name}} peer milan"),
		Args:    oneName, ValidArgsFunction: f.completePeers(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			o.Name, o.Namespace = args[0], f.namespace()
			return action.Peer(cmd.Context(), c, o, f.printer)
		},
	}
	timeoutFlag(cmd, &o.Timeout, peerTimeout)
	cmd.AddCommand(newPeerOutOfBand(f, &o), newInBand("Peer through the network between the clusters"))
	return cmd
}

func newPeerOutOfBand(f *Factory, o *action.PeerOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use: "out-of-band NAME", Aliases: []string{"oob"}, Short: "Use the resources of a cluster whose API server can be reached directly",
		Long: f.text("Use the resources of a cluster whose API server and authentication service can be reached directly.\n\n" +
			"`{{name}} generate peer-command`, run in that cluster, prints this command with all its flags. NAME is how the cluster\n" +
			"is called here; it need not be its own name. Everything is checked before anything is changed.\n\n" +
			"What is on a command line can be seen by others on the same machine. So the token may also come from the standard\n" +
			"input (--auth-token -) or from the environment variable " + tokenVariable + "."),
		Example: f.text(`  {{name}} peer out-of-band milan --auth-url https://192.0.2.10:30443 --cluster-id ID --auth-token TOKEN

  # The token from a file
  {{name}} peer out-of-band milan --auth-url https://192.0.2.10:30443 --cluster-id ID --auth-token - < token`),
		Args: oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := readToken(o.Token, cmd.Flags().Changed("auth-token"), f.streams.In)
			if err != nil {
				return err
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			wanted := *o
			wanted.Name, wanted.Namespace, wanted.Token = args[0], f.namespace(), token
			return action.PeerOutOfBand(cmd.Context(), c, wanted, f.printer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.AuthURL, "auth-url", "", "URL of the other cluster's authentication service")
	flags.StringVar(&o.ClusterID, "cluster-id", "", "ID of the other cluster")
	flags.StringVar(&o.Token, "auth-token", "", "Token of the other cluster; - reads it from the standard input (default: the variable "+tokenVariable+")")
	flags.BoolVar(&o.SkipPreflight, "skip-preflight", false, "Only warn if this machine cannot reach the other cluster: for when the clusters can reach each other")
	for _, name := range []string{"auth-url", "cluster-id"} {
		_ = cmd.MarkFlagRequired(name)
	}
	for _, name := range []string{"auth-url", "cluster-id", "auth-token"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// readToken takes the token from the flag, from the standard input if the flag says so, or else from the environment.
func readToken(flag string, given bool, in io.Reader) (string, error) {
	switch {
	case given && flag != "-":
		return flag, nil
	case given:
		text, err := io.ReadAll(io.LimitReader(in, maxToken))
		if err != nil {
			return "", fmt.Errorf("read the token from the standard input: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	token, set := os.LookupEnv(tokenVariable)
	if !set {
		return "", errors.New("the token of the other cluster is missing: add --auth-token TOKEN, or --auth-token - to read it from the standard input, " +
			"or set " + tokenVariable + "; `generate peer-command`, run in the other cluster, prints it")
	}
	return strings.TrimSpace(token), nil
}

// newInBand answers those who know the command from elsewhere.
func newInBand(short string) *cobra.Command {
	return &cobra.Command{
		Use: "in-band", Aliases: []string{"ib"}, Short: short + " (not in this version)",
		// Whatever its flags are: the answer is the same.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		Args:               cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("in-band peering goes through the network fabric between clusters, which this version does not have yet, so nothing was changed; " +
				"use out-of-band, for which the API server of the other cluster must be reachable")
		},
	}
}

// oneName wants the name of one foreign cluster.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the name of one cluster, got %d arguments", len(args))
	}
	return nil
}
