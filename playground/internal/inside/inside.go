// SPDX-License-Identifier: Apache-2.0

// Package inside accesses a playground that is up: it reads status and logs, runs commands in
// nodes, loads images into nodes, and stops or kills components.
//
// It gets every status from the machines and API servers; package record only names them. Its
// proof is the e2e suite.
package inside

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/progress"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/topology"
)

func componentNames(machineName string) ([]string, error) {
	m, err := machine.ReadSpec(record.SpecPath(machineName))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(m.Components))
	for _, c := range m.Components {
		names = append(names, c.Name)
	}
	return names, nil
}

// Act starts, stops, restarts or kills a component and returns when that has
// taken effect on its process. name is COMPONENT or NODE/COMPONENT.
func Act(ctx context.Context, clusterName, name string, action machine.Action) error {
	return record.Exclusively(func(_ record.State, t topology.Topology) error {
		c, err := record.Cluster(t, clusterName)
		if err != nil {
			return err
		}
		r, component, err := findComponent(c, name, componentNames)
		if err != nil {
			return err
		}
		return machine.NewClient(r.Socket).Act(ctx, component, action)
	})
}

// LogFile returns the path of a component's log; name is COMPONENT or NODE/COMPONENT.
func LogFile(clusterName, name string) (string, error) {
	_, t, err := record.LoadComplete()
	if err != nil {
		return "", err
	}
	c, err := record.Cluster(t, clusterName)
	if err != nil {
		return "", err
	}
	r, component, err := findComponent(c, name, componentNames)
	if err != nil {
		return "", err
	}
	m, err := machine.ReadSpec(record.SpecPath(r.Name))
	if err != nil {
		return "", err
	}
	return filepath.Join(m.LogDir, component+".log"), nil
}

// EnterNode returns the command that runs argv inside a node, as if logged in to it.
func EnterNode(ctx context.Context, clusterName, nodeName string, argv []string) (*exec.Cmd, error) {
	_, t, err := record.LoadComplete()
	if err != nil {
		return nil, err
	}
	c, n, err := record.Node(t, clusterName, nodeName)
	if err != nil {
		return nil, err
	}
	return enter(ctx, c, n, argv)
}

func enter(ctx context.Context, c topology.Cluster, n topology.Node, argv []string) (*exec.Cmd, error) {
	pid, err := machine.HostPID(topology.Socket(c.NodeMachine(n.Name)))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w; start it with: playground node start %s %s", n.Name, err, c.Name, n.Name)
	}
	args := append([]string{"--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Env = []string{
		"PATH=/opt/playground/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "TERM=" + os.Getenv("TERM"),
		"KUBECONFIG=/etc/kubernetes/kubelet.kubeconfig", "CONTAINERD_NAMESPACE=k8s.io",
	}
	return cmd, nil
}

// Load imports an image archive into every real node of the named clusters, of all if none
// is named.
func Load(ctx context.Context, show *progress.Printer, archive string, clusters []string) error {
	if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("open the image archive: %w", err)
	}
	_, t, err := record.LoadComplete()
	if err != nil {
		return err
	}
	var chosen []topology.Cluster
	for _, name := range clusters {
		c, err := record.Cluster(t, name)
		if err != nil {
			return err
		}
		chosen = append(chosen, c)
	}
	if len(clusters) == 0 {
		chosen = t.Clusters
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, c := range chosen {
		for _, n := range c.Nodes {
			step := show.Step("load " + filepath.Base(archive) + " into " + n.Name)
			group.Go(func() error {
				err := importInto(ctx, c, n, archive)
				step.End(err)
				return err
			})
		}
	}
	return group.Wait()
}

func importInto(ctx context.Context, c topology.Cluster, n topology.Node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("open the image archive: %w", err)
	}
	defer func() { _ = f.Close() }()
	cmd, err := enter(ctx, c, n, []string{"ctr", "--namespace=k8s.io", "images", "import", "--local", "-"})
	if err != nil {
		return err
	}
	cmd.Stdin = io.Reader(f)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s into %s: %s: %w", archive, n.Name, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// KubeconfigPaths returns the kubeconfigs that were written for the user, of the named
// clusters or of all.
func KubeconfigPaths(clusters []string) ([]string, error) {
	state, t, err := record.LoadComplete()
	if err != nil {
		return nil, err
	}
	if len(clusters) == 0 {
		for _, c := range t.Clusters {
			clusters = append(clusters, c.Name)
		}
	}
	paths := make([]string, 0, len(clusters))
	for _, name := range clusters {
		if _, err := record.Cluster(t, name); err != nil {
			return nil, err
		}
		paths = append(paths, state.Kubeconfig(name))
	}
	return paths, nil
}

// ComponentNames lists the components of a cluster as users name them.
func ComponentNames(clusterName string) ([]string, error) {
	_, t, err := record.LoadComplete()
	if err != nil {
		return nil, err
	}
	c, err := record.Cluster(t, clusterName)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range record.Machines(c) {
		names, err := componentNames(r.Name)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if short := record.ShortName(c, r.Name); short != record.ControlPlane {
				n = short + "/" + n
			}
			out = append(out, n)
		}
	}
	return out, nil
}
