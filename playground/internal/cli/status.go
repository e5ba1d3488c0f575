// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/inside"
	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/record"
)

func (a *app) status() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status", Short: "Show clusters, nodes, components and faults as they are now",
		Long: `status asks every API server and every machine. Its exit code is 0 if all is well and 3
if something that should run does not.`,
		Example: "  playground status\n  playground status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("output format %q: use json, or none for a table", output)
			}
			report, err := inside.Status(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(a.out)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(report)
			} else {
				a.printStatus(report)
			}
			for _, c := range report.Clusters {
				if !c.Healthy() {
					return exitError{3}
				}
			}
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "format: json")
	return c
}

func (a *app) printStatus(r inside.Report) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	row := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("CLUSTER", "STATUS", "NODES", "SERVER", "PODS", "SERVICES", "KUBECONFIG")
	for _, c := range r.Clusters {
		status := "Ready"
		if !c.Healthy() {
			status = "NotReady"
		}
		row(c.Name, status, fmt.Sprintf("%d/%d", c.Health.Nodes.Ready, c.Health.Nodes.Want), c.Server, c.PodCIDR, c.ServiceCIDR, c.Kubeconfig)
	}
	_ = w.Flush()
	for _, c := range r.Clusters {
		_, _ = fmt.Fprintln(w)
		row(strings.ToUpper(c.Name), "ADDRESS", "STATUS")
		for _, m := range c.Machines {
			status := "up"
			if troubles := m.Troubles(); len(troubles) > 0 {
				status = strings.Join(troubles, ", ")
			}
			row(m.Name, m.Address, status)
		}
		_ = w.Flush()
		if !c.Health.API {
			_, _ = fmt.Fprintln(w, "the API server does not answer")
		}
		for _, why := range c.Health.NotReady {
			_, _ = fmt.Fprintln(w, "not Ready: "+why)
		}
	}
	if len(r.Faults) > 0 {
		_, _ = fmt.Fprintln(w, "\nFAULTS")
		for _, f := range r.Faults {
			_, _ = fmt.Fprintln(w, f.String())
		}
	}
	if len(r.Proxies) > 0 {
		_, _ = fmt.Fprintln(w)
		row("PROXY", "KIND", "URL", "STATUS")
		for _, p := range r.Proxies {
			row(p.Name, string(p.Kind), p.URL, map[bool]string{true: "up", false: "down"}[p.Up])
		}
		_ = w.Flush()
	}
	if len(r.NAT) > 0 {
		_, _ = fmt.Fprintln(w, "\nNAT")
		for _, router := range r.NAT {
			_, _ = fmt.Fprintln(w, router.String())
		}
	}
}

func (a *app) kubeconfig() *cobra.Command {
	var path bool
	c := &cobra.Command{
		Use: "kubeconfig [CLUSTER...]", Short: "Print the kubeconfig of clusters, one context each (all if none is named)",
		Example: "  playground kubeconfig rome > rome.yaml\n  playground kubeconfig > both.yaml\n  export KUBECONFIG=$(playground kubeconfig --path rome)",
		RunE: func(_ *cobra.Command, args []string) error {
			paths, err := inside.KubeconfigPaths(args)
			if err != nil {
				return err
			}
			if path {
				a.printf("%s\n", strings.Join(paths, ":"))
				return nil
			}
			files := make([][]byte, len(paths))
			for i, p := range paths {
				if files[i], err = os.ReadFile(p); err != nil {
					return fmt.Errorf("read kubeconfig: %w", err)
				}
			}
			merged, err := pki.Merge(files...)
			if err != nil {
				return err
			}
			a.printf("%s", merged)
			return nil
		},
		ValidArgsFunction: completeClusters(-1),
	}
	c.Flags().BoolVar(&path, "path", false, "print the paths of the files instead, in the form of the KUBECONFIG variable")
	return c
}

// completeClusters completes names of clusters for the first n arguments; -1 means all.
func completeClusters(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		_, t, err := record.LoadComplete()
		if err != nil || (n >= 0 && len(args) >= n) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, c := range t.Clusters {
			names = append(names, c.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
