// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"liqo.io/liqo/internal/cli/access"
)

// newDocs writes the reference of all commands, for web sites and man pages.
func newDocs(f *access.Factory) *cobra.Command {
	dir, kind, headers := ".", "markdown", false
	cmd := &cobra.Command{
		Use: "docs", Short: "Write the reference of all commands", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			switch kind {
			case "markdown":
				header := func(file string) string {
					if !headers {
						return ""
					}
					title := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".md"), "_", " ")
					return fmt.Sprintf("---\ntitle: %s\n---\n\n", title)
				}
				return doc.GenMarkdownTreeCustom(root, dir, header, func(link string) string { return link })
			case "man":
				return doc.GenManTree(root, &doc.GenManHeader{Title: "LIQOCTL", Section: "1"}, dir)
			default:
				return fmt.Errorf("--type %s: want markdown or man", kind)
			}
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "Folder to write to")
	cmd.Flags().StringVar(&kind, "type", kind, "Format: markdown or man")
	cmd.Flags().BoolVar(&headers, "generate-headers", headers, "Add a header for web sites to markdown files")
	return cmd
}
