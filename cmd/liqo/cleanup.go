// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"liqo.io/liqo/cmd/liqo/role"
	peercleanup "liqo.io/liqo/internal/peering/cleanup"
)

// cleanup ends all peerings before the chart is removed. Administrators read its output in the log of a Job.
func cleanup() role.Role {
	return role.Role{Name: "cleanup", Short: "End all peerings, before Liqo is removed", New: func() *cobra.Command {
		var o cleanupOptions
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return peercleanup.Run(cmd.Context(), cfg, peercleanup.Options{Namespace: o.namespace, Timeout: o.timeout, Out: cmd.OutOrStdout()})
		})
	}}
}

type cleanupOptions struct {
	namespace string
	timeout   time.Duration
}

func (o *cleanupOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "liqo-namespace", "liqo", "namespace in which Liqo is installed")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the peerings to end")
}

func (o *cleanupOptions) Validate() error {
	if o.timeout <= 0 {
		return errors.New("--timeout must be more than zero")
	}
	return nil
}
