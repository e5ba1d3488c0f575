// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/inside"
	"liqo.io/liqo/playground/internal/lifecycle"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/scenarios"
)

const defaultScenario = "quick-start"

func (a *app) up() *cobra.Command {
	var o lifecycle.UpOptions
	var network string
	var audit bool
	c := &cobra.Command{
		Use:   "up [SCENARIO]",
		Short: "Bring up the clusters of a scenario and wait until they are Ready",
		Long: `up brings up the clusters of a scenario: the name of one that ships (see: playground
scenarios), or a file. It builds missing programs first, which takes ten to fifteen minutes
once. With the scenario that is already up, it changes nothing, or restarts machines that
are down. If it fails, it removes all it has made.`,
		Example: `  playground up
  playground up three-overlap --kubeconfig-dir ~/.kube/playground
  playground up ./my-scenario.yaml --audit`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultScenario
			if len(args) > 0 {
				name = args[0]
			}
			s, err := readScenario(name)
			if err != nil {
				return err
			}
			if network != "" {
				prefix, err := netip.ParsePrefix(network)
				if err != nil || !prefix.Addr().Is4() {
					return fmt.Errorf("--network %q is no IPv4 prefix; write for example 10.210.0.0/16", network)
				}
				if s, err = lifecycle.OnNetwork(s, prefix); err != nil {
					return err
				}
			}
			for i := range s.Clusters {
				s.Clusters[i].Audit = s.Clusters[i].Audit || audit
			}
			if o.KubeconfigDir != "" {
				if o.KubeconfigDir, err = filepath.Abs(o.KubeconfigDir); err != nil {
					return fmt.Errorf("make the kubeconfig directory absolute: %w", err)
				}
			}
			return a.runUp(cmd.Context(), s, o)
		},
	}
	c.Flags().StringVar(&o.KubeconfigDir, "kubeconfig-dir", "", "directory for one kubeconfig a cluster, CLUSTER.yaml (default: inside the playground's state)")
	c.Flags().BoolVar(&o.Keep, "keep-on-failure", false, "keep the result of a failed start for inspection")
	c.Flags().StringVar(&network, "network", "", "prefix for all node networks (default "+scenario.DefaultNetwork+")")
	c.Flags().BoolVar(&audit, "audit", false, "write an API audit log in every cluster")
	return c
}

func (a *app) runUp(ctx context.Context, s scenario.Scenario, o lifecycle.UpOptions) error {
	p, err := a.playground()
	if err != nil {
		return err
	}
	start := time.Now()
	changed, err := p.Up(ctx, s, o)
	if err != nil {
		return err
	}
	if changed {
		a.printf("%s is up after %.1fs.\n\n", s.Name, time.Since(start).Seconds())
	} else {
		a.printf("%s is up already; nothing changed.\n\n", s.Name)
	}
	report, err := inside.Status(ctx)
	if err != nil {
		return err
	}
	a.printStatus(report)
	a.printNext(report)
	return nil
}

func (a *app) printNext(r inside.Report) {
	var paths []string
	for _, c := range r.Clusters {
		paths = append(paths, c.Kubeconfig)
	}
	first := r.Clusters[0]
	exe := program()
	a.printf("\nWhat to type next:\n  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n  kubectl --context %s get nodes\n",
		strings.Join(paths, ":"), r.Bin, first.Name)
	a.printf("  %s status\n  %s down\n", exe, exe)
}

// program is this program as the user can type it.
func program() string {
	if strings.ContainsRune(os.Args[0], '/') {
		return os.Args[0]
	}
	return "playground"
}

// readScenario reads a file, or a shipped scenario by its name.
func readScenario(name string) (scenario.Scenario, error) {
	if strings.ContainsAny(name, "/.") {
		data, err := os.ReadFile(name)
		if err != nil {
			return scenario.Scenario{}, fmt.Errorf("read scenario: %w", err)
		}
		return scenario.Parse(name, data)
	}
	data, err := fs.ReadFile(scenarios.Files, name+".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return scenario.Scenario{}, fmt.Errorf(
			"no scenario %q ships; there are: %s (a file is given by its path, ./%s.yaml)", name, strings.Join(shipped(), ", "), name,
		)
	}
	if err != nil {
		return scenario.Scenario{}, err
	}
	return scenario.Parse(name+".yaml", data)
}

func shipped() []string {
	files, _ := fs.Glob(scenarios.Files, "*.yaml") // cannot fail: the pattern is right
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files
}

func completeScenario(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return shipped(), cobra.ShellCompDirectiveDefault
}

func (a *app) scenarios() *cobra.Command {
	return &cobra.Command{
		Use: "scenarios [NAME]", Short: "List the scenarios that ship, or print one to start from",
		Example: "  playground scenarios\n  playground scenarios quick-start > my-scenario.yaml",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: completeScenario,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				data, err := fs.ReadFile(scenarios.Files, args[0]+".yaml")
				if err != nil {
					return fmt.Errorf("no scenario %q ships; there are: %s", args[0], strings.Join(shipped(), ", "))
				}
				a.printf("%s", data)
				return nil
			}
			for _, name := range shipped() {
				data, err := fs.ReadFile(scenarios.Files, name+".yaml")
				if err != nil {
					return err
				}
				first, _, _ := strings.Cut(string(data), "\n")
				a.printf("%-20s %s\n", name, strings.TrimPrefix(first, "# "))
			}
			return nil
		},
	}
}

func (a *app) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Take everything down: processes, namespaces, links, mounts, cgroups, files",
		Long: `down removes everything of the playground but the cache of built programs. It works
without any record of what was made, also after a crash of the machine's processes.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			found, err := a.running().Down()
			if err != nil {
				return err
			}
			if !found {
				a.printf("No playground is up.\n")
			}
			return nil
		},
	}
}
