// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCompletion(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for a shell",
		Example: f.text(`  source <({{name}} completion bash)
  {{name}} completion zsh > "${fpath[1]}/_liqoctl"
  {{name}} completion fish > ~/.config/fish/completions/liqoctl.fish`),
		Args:      exactly(1, "a shell: bash, zsh, fish or powershell"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(f.streams.Out, true)
			case "zsh":
				return root.GenZshCompletion(f.streams.Out)
			case "fish":
				return root.GenFishCompletion(f.streams.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(f.streams.Out)
			default:
				return fmt.Errorf("no completion for shell %q; there is bash, zsh, fish and powershell", args[0])
			}
		},
	}
}
