// SPDX-License-Identifier: Apache-2.0

// Command liqo is every process that Liqo runs in a cluster: the roles in the table below. It connects the domains
// and contains no logic of theirs. The end-to-end tests prove the roles.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/version"
)

// role is one process. Several pods may run the same role, but a process runs only one.
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
		proxyRole(),
		dnsRole(),
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

// program returns the root command.
func program() *cobra.Command {
	root := &cobra.Command{
		Use: "liqo ROLE", Short: "The processes of Liqo in a cluster", Version: version.Version,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("no role given; `%s --help` lists them. To manage Liqo, use liqoctl", cmd.Name())
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

// named returns a copy of cfg that names the role to the API server, in audit logs and in the managed fields of what it writes.
func named(cfg *rest.Config, role string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "liqo-" + role + "/" + version.Version
	}
	return cfg
}

// command returns the command of a role that uses the API server of its own cluster. home returns how to reach it, or nil if the role needs none
// with these flags.
func command(o options, home func() (*rest.Config, error), run func(*cobra.Command, *rest.Config) error) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reportIgnored(cmd.Flags(), ctrllog.FromContext(cmd.Context()))
			if err := o.Validate(); err != nil {
				return err
			}
			cfg, err := home()
			if err != nil {
				return err
			}
			if cfg != nil {
				cfg = kubemanager.WaitWatches(named(cfg, cmd.Name()))
			}
			return run(cmd, cfg)
		},
	}
	o.Register(cmd.Flags())
	return cmd
}
