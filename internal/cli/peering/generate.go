// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action/generate"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/cli/access"
)

func NewGenerate(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "generate", Short: "Print what another cluster needs to peer with this one", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}
	cmd.AddCommand(newGeneratePeerCommand(f))
	return cmd
}

func newGeneratePeerCommand(f *access.Factory) *cobra.Command {
	only, inBand := false, false
	var o tokens.Options
	cmd := &cobra.Command{
		Use: "peer-command", Short: "Print the command that makes another cluster use the resources of this one",
		Long: f.Text("Print the command that, run in another cluster, makes that one use the resources of this one.\n\n" +
			"The command contains a token, which proves both clusters to each other: treat it like a password.\n" +
			"The first cluster that uses it is the only one that may use it, within a day (--expires); --for names that cluster.\n" +
			"So run this command once for each cluster. With --shared, it is the token that all clusters may use, without end.\n" +
			"`{{name}} rotate token` withdraws all tokens; clusters that are peers already do not need them."),
		Example: f.Text(`  {{name}} generate peer-command

  # Only for the cluster rome, within an hour
  {{name}} generate peer-command --for rome --expires 1h

  # For a cluster that reaches nothing of this one but the gateway
  {{name}} generate peer-command --in-band --for rome

  # For scripts
  eval "$({{name}} --context provider generate peer-command --only-command) --context consumer"`),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			f.Printer = f.Printer.QuietOut()
			if inBand {
				return printInvitation(f, cmd, c, o, only)
			}
			command, err := generate.ForPeer(cmd.Context(), c, f.Namespace(), o, f.Printer)
			if err != nil {
				return err
			}
			f.Printer.Stop()
			line := commandLine(f, command.Args())
			if !only {
				line = "\nTo let another cluster use the resources of this one, run there:\n\n" + line
			}
			_, err = fmt.Fprintln(f.Streams.Out, line)
			return err
		},
	}
	cmd.Flags().StringVar(&o.For, "for", "", "ID or name of the only cluster that may use the token")
	cmd.Flags().DurationVar(&o.Expires, "expires", 0, "How long the token is valid, like 1h (default 24h)")
	cmd.Flags().BoolVar(&o.Shared, "shared", false, "Print the token that all clusters may use, without end, in place of one that one cluster may use")
	cmd.Flags().BoolVar(&inBand, "in-band", false, "The other cluster reaches the gateway of this one only; the command holds an invitation, which can be "+
		"used once and ends with the token")
	cmd.Flags().BoolVar(&only, "only-command", only, "Print the command and nothing else, for scripts")
	return cmd
}

// commandLine is a command line of liqoctl.
func commandLine(f *access.Factory, args []string) string {
	line := f.Name
	for _, arg := range args {
		line += " " + shellWord(arg)
	}
	return line
}

// printInvitation prints the command for a cluster that reaches the gateway of this one only.
func printInvitation(f *access.Factory, cmd *cobra.Command, c client.WithWatch, o tokens.Options, only bool) error {
	command, err := generate.Invite(cmd.Context(), c, f.Namespace(), o, f.Printer)
	if err != nil {
		return err
	}
	f.Printer.Stop()
	line := commandLine(f, command.Args())
	if !only {
		line = fmt.Sprintf("\nTo let another cluster use the resources of this one through the tunnel between them, run there, once and before %s:\n\n%s\n\n"+
			"To withdraw the invitation: %s unpeer in-band %s --force, and %[3]s rotate token", command.Expires.Format(time.RFC3339), line, f.Name, command.Name)
	}
	_, err = fmt.Fprintln(f.Streams.Out, line)
	return err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// shellWord quotes a word that a shell would split or expand, because scripts evaluate the command.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
