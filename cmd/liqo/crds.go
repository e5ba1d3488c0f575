// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"liqo.io/liqo/cmd/liqo/role"
	chart "liqo.io/liqo/deployments/liqo"
	kubecrds "liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/scheme"
)

// crds updates the custom resource definitions, for upgrades with Helm alone.
func crds() role.Role {
	return role.Role{Name: "crds", Short: "Update the custom resource definitions of this cluster", New: func() *cobra.Command {
		var timeout time.Duration
		cmd := &cobra.Command{
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				definitions, err := kubecrds.Load(chart.FS)
				if err != nil {
					return err
				}
				cfg, err := config.GetConfig()
				if err != nil {
					return err
				}
				kinds, err := scheme.Of(kubecrds.AddToScheme)
				if err != nil {
					return err
				}
				c, err := client.New(role.Named(cfg, cmd.Name()), client.Options{Scheme: kinds})
				if err != nil {
					return err
				}
				return kubecrds.Apply(ctx, c, definitions, func(name string) { fmt.Fprintln(cmd.OutOrStdout(), "applied", name) })
			},
		}
		cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "timeout of the whole update")
		return cmd
	}}
}
