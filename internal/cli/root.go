// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of liqoctl: a file per command. A command parses its arguments, calls package action, and
// prints the result.
//
// It must not know how an action works, only its options and its output. Its proof are peering_test.go, offload_test.go and
// test_test.go: arguments and exact output.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"liqo.io/liqo/internal/cli/access"
	"liqo.io/liqo/internal/cli/output"
	"liqo.io/liqo/internal/cli/peering"
	"liqo.io/liqo/internal/kube/printable"
)

// commands in the order of the help.
var commands = []func(*access.Factory) *cobra.Command{
	newInstall, newUpgrade, newUninstall,
	peering.NewGenerate, peering.NewRotate, peering.NewPeer, peering.NewUnpeer, peering.NewAccept,
	newOffload, newUnoffload, newMove,
	newStatus, newTest, newVersion, newCompletion, newDocs,
}

// Run executes one command line and returns the exit code: 0, or 1 after any error.
func Run(ctx context.Context, streams genericiooptions.IOStreams, argv []string) int {
	root, factory := newRoot(streams, commandName(argv[0]))
	root.SetArgs(argv[1:])
	err := root.ExecuteContext(ctx)
	factory.Printer.Stop()
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	factory.Printer.Fail(err)
	return 1
}

// commandName is the command that users type: the program can also be a plugin of kubectl.
func commandName(program string) string {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if name == "kubectl-liqo" {
		return "kubectl liqo"
	}
	return "liqoctl"
}

// NewRoot returns the whole command tree, for documents and tests.
func NewRoot(streams genericiooptions.IOStreams, name string) *cobra.Command {
	root, _ := newRoot(streams, name)
	return root
}

func newRoot(streams genericiooptions.IOStreams, name string) (*cobra.Command, *access.Factory) {
	streams.Out = printable.NewWriter(streams.Out)
	f := &access.Factory{Streams: streams, Flags: genericclioptions.NewConfigFlags(true), Name: name, Printer: output.New(streams)}
	f.Printer.Name = name
	root := &cobra.Command{
		Use: name, Short: "Install Liqo, peer clusters, show their status",
		Long: "Liqo lets Kubernetes clusters share resources. " + name + " installs it in a cluster, lets the cluster use resources of\n" +
			"another one, and shows the status of both.",
		Example: f.Text(`  # In each cluster
  {{name}} install --cluster-name milan

  # In the cluster that lends its resources: print a command ...
  {{name}} generate peer-command

  # ... and run it in the cluster that uses them
  {{name}} peer out-of-band milan --auth-url https://... --cluster-id ... --auth-token ...`),
		SilenceUsage: true, SilenceErrors: true,
		Args:             cobra.NoArgs,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { f.Logs(cmd) },
		Run:              func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}
	if name != "liqoctl" {
		root.Use = "liqo"
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
	})
	f.Register(root)
	for _, command := range commands {
		root.AddCommand(command(f))
	}
	return root, f
}
