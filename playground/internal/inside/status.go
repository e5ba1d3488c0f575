// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/fault"
	"liqo.io/liqo/playground/internal/health"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/nat"
	"liqo.io/liqo/playground/internal/proxy"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/topology"
)

// Report is what `status` shows; its JSON form is what `status -o json` prints.
type Report struct {
	Scenario string          `json:"scenario"`
	Bin      string          `json:"bin"`
	Clusters []ClusterReport `json:"clusters"`
	Faults   []fault.Link    `json:"faults"`
	NAT      []nat.Router    `json:"nat,omitempty"`
	Proxies  []ProxyReport   `json:"proxies,omitempty"`
}

// ClusterReport is the present state of a cluster, from its API server and its machines, never
// from a record.
type ClusterReport struct {
	Name        string          `json:"name"`
	Server      string          `json:"server"`
	PodCIDR     string          `json:"podCIDR"`
	ServiceCIDR string          `json:"serviceCIDR"`
	NodeCIDR    string          `json:"nodeCIDR"`
	KubeProxy   string          `json:"kubeProxy"`
	Kubeconfig  string          `json:"kubeconfig"`
	AuditLog    string          `json:"auditLog,omitempty"`
	Health      health.Report   `json:"health"`
	Machines    []MachineReport `json:"machines"`
}

// MachineReport is a control plane or a node with its components.
type MachineReport struct {
	Name       string           `json:"name"`
	Address    string           `json:"address"`
	Up         bool             `json:"up"`
	Components []machine.Status `json:"components"`
}

// ProxyReport is a proxy with its address, and whether its program runs.
type ProxyReport struct {
	proxy.Proxy
	Name string `json:"name"`
	URL  string `json:"url"`
	Up   bool   `json:"up"`
}

func proxyReports(ctx context.Context, state record.State, t topology.Topology) []ProxyReport {
	var out []ProxyReport
	for _, p := range state.Proxies {
		c, _ := t.Cluster(p.Cluster)
		components, err := machine.NewClient(topology.Socket(c.NodeMachine(p.Name()))).Components(ctx)
		up := err == nil && len(components) == 1 && components[0].State == machine.Running
		out = append(out, ProxyReport{Proxy: p, Name: p.Name(), URL: p.URL(c), Up: up})
	}
	return out
}

// Healthy reports whether everything of the cluster that should run does.
func (c ClusterReport) Healthy() bool {
	if !c.Health.Done {
		return false
	}
	for _, m := range c.Machines {
		if len(m.Troubles()) > 0 {
			return false
		}
	}
	return true
}

// Troubles describes the components of a machine that do not run.
func (m MachineReport) Troubles() []string {
	if !m.Up {
		return []string{"down"}
	}
	var out []string
	for _, c := range m.Components {
		if c.State != machine.Running && c.State != machine.Done {
			text := c.Name + " " + string(c.State)
			if c.LastExit != "" {
				text += " (" + c.LastExit + ")"
			}
			out = append(out, text)
		}
	}
	return out
}

// Status asks all clusters for their state.
func Status(ctx context.Context) (Report, error) {
	state, t, err := record.LoadComplete()
	if err != nil {
		return Report{}, err
	}
	set := build.Set{Dir: state.Set}
	r := Report{
		Scenario: state.Scenario.Name, Bin: filepath.Dir(set.Program("kubectl")), Clusters: make([]ClusterReport, len(t.Clusters)),
		Faults: []fault.Link{}, NAT: state.NAT.Routers,
	}
	r.Faults = append(r.Faults, state.Faults.Links...)
	r.Proxies = proxyReports(ctx, state, t)
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range t.Clusters {
		group.Go(func() error {
			r.Clusters[i], err = clusterReport(ctx, state, set, c)
			return err
		})
	}
	return r, group.Wait()
}

func clusterReport(ctx context.Context, state record.State, set build.Set, c topology.Cluster) (ClusterReport, error) {
	out := ClusterReport{
		Name: c.Name, Server: c.Server(), PodCIDR: c.PodCIDR.String(), ServiceCIDR: c.ServiceCIDR.String(),
		NodeCIDR: c.NodeCIDR.String(), KubeProxy: string(c.KubeProxy), Kubeconfig: state.Kubeconfig(c.Name),
	}
	if c.Audit {
		out.AuditLog = cluster.AuditLog(c)
	}
	addresses := map[string]string{c.ControlPlaneMachine(): c.ControlPlane.Address.String()}
	for _, n := range c.Nodes {
		addresses[c.NodeMachine(n.Name)] = n.Address.String()
	}
	for _, r := range record.Machines(c) {
		components, err := machine.NewClient(r.Socket).Components(ctx)
		if err != nil && !errors.Is(err, machine.ErrDown) {
			return out, err
		}
		out.Machines = append(out.Machines, MachineReport{
			Name: record.ShortName(c, r.Name), Address: addresses[r.Name], Up: err == nil, Components: components,
		})
	}
	var err error
	out.Health, err = health.Ask(ctx, set, c)
	return out, err
}

// findComponent finds the machine that runs a component, named COMPONENT or NODE/COMPONENT.
func findComponent(c topology.Cluster, name string, specs func(machineName string) ([]string, error)) (record.Machine, string, error) {
	owner, component, addressed := strings.Cut(name, "/")
	if !addressed {
		owner, component = "", name
	}
	var found []record.Machine
	var all []string
	for _, r := range record.Machines(c) {
		if short := record.ShortName(c, r.Name); owner != "" && owner != short {
			continue
		}
		names, err := specs(r.Name)
		if err != nil {
			return record.Machine{}, "", err
		}
		for _, n := range names {
			full := record.ShortName(c, r.Name) + "/" + n
			all = append(all, full)
			if n == component {
				found = append(found, r)
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0], component, nil
	case 0:
		if len(all) == 0 {
			return record.Machine{}, "", fmt.Errorf("cluster %s has no node %q", c.Name, owner)
		}
		return record.Machine{}, "", fmt.Errorf("cluster %s has no component %q; it has: %s", c.Name, name, strings.Join(all, ", "))
	}
	return record.Machine{}, "", fmt.Errorf("%d nodes of %s have a component %q; name the node: NODE/%s", len(found), c.Name, component, component)
}
