// SPDX-License-Identifier: Apache-2.0

// Command liqo is every process that Liqo runs in a cluster: the roles in the table below. It wires domains and
// decides nothing. The end-to-end tests prove the roles, TestRoles that each says what it is for.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/version"
)

// role is one process. A role may be in several pods, but never two in one process.
type role struct {
	name, short string
	new         func() *cobra.Command
}

func roles() []role {
	return []role{
		controllerManager(),
		auth(),
		virtualKubelet(),
		gatewayRole(),
		routeRole(),
		metricAgent(),
		cleanup(),
		crds(),
		networkTestServer(),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(logTo(os.Stderr), os.Interrupt, syscall.SIGTERM)
	err := program().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "liqo: %v\n", err)
		os.Exit(1)
	}
}

// program is the command line.
func program() *cobra.Command {
	root := &cobra.Command{
		Use: "liqo ROLE", Short: "The processes of Liqo in a cluster", Version: version.Version,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("which role? see `%s --help`; people use liqoctl", cmd.Name())
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	for _, r := range roles() {
		cmd := r.new()
		cmd.Use, cmd.Short = r.name, r.short
		root.AddCommand(cmd)
	}
	return root
}

// options are the flags of a role.
type options interface {
	Register(flags *pflag.FlagSet)
	Validate() error
}

// command is the one of a role that talks to the API server of its own cluster, where home says that is.
func command(o options, home func() (*rest.Config, error), run func(*cobra.Command, *rest.Config) error) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			cfg, err := home()
			if err != nil {
				return err
			}
			if cfg != nil { // some errands need no API server
				cfg = kubemanager.WaitWatches(cfg)
			}
			return run(cmd, cfg)
		},
	}
	o.Register(cmd.Flags())
	return cmd
}
