// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/scenario"
)

func (a *app) add() *cobra.Command {
	var file string
	var want struct {
		pods, services, proxy string
		workers, hollow       int
		audit                 bool
	}
	c := &cobra.Command{
		Use: "add CLUSTER", Short: "Add a cluster to the playground while the others run",
		Example: `  playground add florence --workers 1
  playground add florence -f my-scenario.yaml   # as described in that file`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readScenario(filePath(file))
			if file == "" {
				var text strings.Builder
				_, _ = fmt.Fprintf(&text, "clusters:\n- name: %q\n  podCIDR: %q\n  serviceCIDR: %q\n  kubeProxy: %q\n  audit: %t\n  nodes:\n  - role: control-plane\n",
					args[0], want.pods, want.services, want.proxy, want.audit)
				text.WriteString(strings.Repeat("  - role: worker\n", max(0, want.workers)))
				if want.hollow > 0 {
					_, _ = fmt.Fprintf(&text, "  hollow:\n  - {kind: kwok, count: %d, labels: {type: kwok}}\n", want.hollow)
				}
				s, err = scenario.Parse("the cluster", []byte(text.String()))
			}
			if err != nil {
				return err
			}
			for _, described := range s.Clusters {
				if described.Name == args[0] {
					added, err := a.running().Add(cmd.Context(), described)
					if err != nil {
						return err
					}
					a.printf("cluster %s is up at %s\n", added.Name, added.Server())
					return nil
				}
			}
			return fmt.Errorf("%s describes no cluster %q", file, args[0])
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "scenario file that describes the cluster, instead of the flags below")
	c.Flags().StringVar(&want.pods, "pod-cidr", scenario.DefaultPodCIDR, "pod network")
	c.Flags().StringVar(&want.services, "service-cidr", scenario.DefaultServiceCIDR, "service network")
	c.Flags().StringVar(&want.proxy, "kube-proxy", string(scenario.ProxyNFTables), "mode of kube-proxy: nftables or iptables")
	c.Flags().IntVar(&want.workers, "workers", 0, "number of worker nodes beside the first node")
	c.Flags().IntVar(&want.hollow, "hollow", 0, "number of hollow (kwok) nodes")
	c.Flags().BoolVar(&want.audit, "audit", false, "write an API audit log")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return nil
		}
		for _, name := range []string{"pod-cidr", "service-cidr", "kube-proxy", "workers", "hollow", "audit"} {
			if cmd.Flags().Changed(name) {
				return errors.New("--file describes the whole cluster; leave --" + name + " out")
			}
		}
		return nil
	}
	return c
}

// filePath makes a name in the working directory look like a file, not like a scenario that
// ships.
func filePath(name string) string {
	if strings.ContainsRune(name, '/') {
		return name
	}
	return "./" + name
}

func (a *app) remove() *cobra.Command {
	return &cobra.Command{
		Use: "remove CLUSTER", Short: "Remove a cluster from the playground while the others run",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeClusters(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.running().Remove(cmd.Context(), args[0]); err != nil {
				return err
			}
			a.printf("cluster %s is gone\n", args[0])
			return nil
		},
	}
}
