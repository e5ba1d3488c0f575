// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"

	"github.com/spf13/cobra"
	"liqo.io/liqo/internal/cli/access"
)

// shells with completion, and instructions to enable it in each new shell.
var shells = []struct {
	name, hint string
	write      func(root *cobra.Command, to io.Writer) error
}{
	{
		"bash", `It needs the package bash-completion. For this shell only:

  source <({{name}} completion bash)

For all new shells:

  {{name}} completion bash > /etc/bash_completion.d/liqoctl                            # Linux, for all users
  {{name}} completion bash > "$(brew --prefix)/etc/bash_completion.d/liqoctl"          # macOS`,
		func(root *cobra.Command, to io.Writer) error { return root.GenBashCompletionV2(to, true) },
	},
	{
		"zsh", `If completion is not enabled yet: echo "autoload -U compinit; compinit" >> ~/.zshrc. For this shell only:

  source <({{name}} completion zsh)

For all new shells:

  {{name}} completion zsh > "${fpath[1]}/_liqoctl"`,
		func(root *cobra.Command, to io.Writer) error { return root.GenZshCompletion(to) },
	},
	{
		"fish", `For this shell only:

  {{name}} completion fish | source

For all new shells:

  {{name}} completion fish > ~/.config/fish/completions/liqoctl.fish`,
		func(root *cobra.Command, to io.Writer) error { return root.GenFishCompletion(to, true) },
	},
	{
		"powershell", `For this shell only:

  {{name}} completion powershell | Out-String | Invoke-Expression

For all new shells, add the output of the command to your profile.`,
		func(root *cobra.Command, to io.Writer) error { return root.GenPowerShellCompletionWithDesc(to) },
	},
}

func newCompletion(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion", Short: "Print a completion script for a shell",
		Long: "Print a script that makes a shell complete commands, flags, and names of clusters and namespaces.\n" +
			"The help of each shell's command explains where to put the script.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, shell := range shells {
		cmd.AddCommand(&cobra.Command{
			Use: shell.name, Short: "Print the completion script for " + shell.name,
			Long: "Print the completion script for " + shell.name + ".\n\n" + f.Text(shell.hint),
			Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions, DisableFlagsInUseLine: true,
			RunE: func(cmd *cobra.Command, _ []string) error { return shell.write(cmd.Root(), f.Streams.Out) },
		})
	}
	return cmd
}
