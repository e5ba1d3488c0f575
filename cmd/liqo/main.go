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

	"liqo.io/liqo/cmd/liqo/kubelet"
	"liqo.io/liqo/cmd/liqo/manager"
	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/version"
)

func roles() []role.Role {
	return []role.Role{
		manager.Role(),
		auth(),
		kubelet.Role(),
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
		cmd := r.New()
		cmd.Use, cmd.Short = r.Name, r.Short
		root.AddCommand(cmd)
	}
	return root
}
