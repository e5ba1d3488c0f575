// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/host"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// ref is a machine of the playground: its name, its control socket, and what must be done
// to its network when it is switched.
type ref struct {
	name   string
	socket string
	// cable is the node's link if the node alone uses it.
	cable *topology.Endpoint
}

func machines(c topology.Cluster) []ref {
	out := []ref{{name: c.ControlPlaneMachine(), socket: topology.Socket(c.ControlPlaneMachine())}}
	for _, n := range c.Nodes {
		out = append(out, nodeRef(c, n))
	}
	return out
}

func nodeRef(c topology.Cluster, n topology.Node) ref {
	r := ref{name: c.NodeMachine(n.Name), socket: topology.Socket(c.NodeMachine(n.Name))}
	if n.Role == scenario.RoleWorker {
		r.cable = &n.Endpoint // the first node's also serves the control plane, which stays up
	}
	return r
}

func specPath(machineName string) string {
	return filepath.Join(topology.StateDir, "machine", machineName+".json")
}

func startMachine(r ref) error {
	if r.cable != nil {
		if err := network.SetPort(*r.cable, true); err != nil {
			return err
		}
	}
	return machine.Resume(specPath(r.name))
}

func stopMachine(r ref) error {
	if r.cable != nil {
		if err := network.SetPort(*r.cable, false); err != nil {
			return err
		}
	}
	return machine.KillGroup(path.Join(topology.Cgroup, r.name), killLimit)
}

// Power is what can be done to a node.
type Power string

// What can be done to a node. Off is abrupt, as if the plug were pulled: that is the case
// worth testing.
const (
	On     Power = "start"
	Off    Power = "stop"
	Reboot Power = "restart"
)

// SwitchNode changes a node's power and returns when the machine is up or gone; what
// Kubernetes makes of it takes its own time.
func (p Playground) SwitchNode(ctx context.Context, clusterName, nodeName string, power Power) error {
	unlock, err := Lock()
	if err != nil {
		return err
	}
	defer unlock()
	_, t, err := LoadComplete()
	if err != nil {
		return err
	}
	c, n, err := findNode(t, clusterName, nodeName)
	if err != nil {
		return err
	}
	r := nodeRef(c, n)
	_, err = machine.HostPID(r.socket)
	up := err == nil
	switch {
	case power == On && up:
		return fmt.Errorf("node %s is up already", nodeName)
	case power == Off && !up:
		return fmt.Errorf("node %s is down already", nodeName)
	}
	if up {
		if err := stopMachine(r); err != nil {
			return err
		}
	}
	if power == Off {
		return nil
	}
	return startMachine(r)
}

func findNode(t topology.Topology, clusterName, nodeName string) (topology.Cluster, topology.Node, error) {
	c, err := findCluster(t, clusterName)
	if err != nil {
		return c, topology.Node{}, err
	}
	n, found := c.Node(nodeName)
	if !found {
		names := make([]string, 0, len(c.Nodes))
		for _, n := range c.Nodes {
			names = append(names, n.Name)
		}
		return c, n, fmt.Errorf("cluster %s has no real node %q; it has: %s", clusterName, nodeName, strings.Join(names, ", "))
	}
	return c, n, nil
}

// Add brings one more cluster up beside those that run.
func (p Playground) Add(ctx context.Context, added scenario.Cluster) (topology.Cluster, error) {
	unlock, err := Lock()
	if err != nil {
		return topology.Cluster{}, err
	}
	defer unlock()
	state, t, err := LoadComplete()
	if err != nil {
		return topology.Cluster{}, err
	}
	if _, exists := t.Cluster(added.Name); exists {
		return topology.Cluster{}, fmt.Errorf("there is a cluster %q already", added.Name)
	}
	s := state.Scenario
	s.Clusters = append(slices.Clone(s.Clusters), added)
	if overlaps := s.Overlaps(); len(overlaps) > 0 {
		return topology.Cluster{}, errors.New(overlaps[0].Text)
	}
	if t, err = topology.New(s); err != nil {
		return topology.Cluster{}, err
	}
	c, _ := t.Cluster(added.Name)
	// The machine was checked when the playground came up; room is what may be short now.
	need := host.Needs{Network: t.Scenario.Network, Dir: topology.StateDir, FreeBytes: baseBytes + uint64(len(c.Nodes))*nodeBytes}
	if err := host.Check(need); err != nil {
		return c, err
	}
	if err := p.addCluster(ctx, state, t, c); err != nil {
		return c, errors.Join(err, removeCluster(c))
	}
	state.Scenario = t.Scenario
	if err := state.writeKubeconfig(c); err != nil {
		return c, err
	}
	return c, state.save()
}

func (p Playground) addCluster(ctx context.Context, state State, t topology.Topology, c topology.Cluster) error {
	if err := network.AddCluster(c); err != nil {
		return err
	}
	if err := p.applyFaults(ctx, t, state.Faults); err != nil {
		return err
	}
	return p.startCluster(ctx, build.Set{Dir: state.Set}, c)
}

// Remove takes one cluster away; the others go on.
func (p Playground) Remove(ctx context.Context, name string) error {
	unlock, err := Lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, t, err := LoadComplete()
	if err != nil {
		return err
	}
	c, err := findCluster(t, name)
	if err != nil {
		return err
	}
	if len(t.Clusters) == 1 {
		return fmt.Errorf("%s is the last cluster; remove the whole playground with: playground down", name)
	}
	step := p.Progress.Step("remove cluster " + name)
	err = removeCluster(c)
	step.End(err)
	if err != nil {
		return err
	}
	state.Scenario.Clusters = slices.DeleteFunc(slices.Clone(t.Scenario.Clusters), func(c scenario.Cluster) bool { return c.Name == name })
	state.Faults = state.Faults.Clear(name)
	kubeconfig := state.Kubeconfig(name)
	if err := os.Remove(kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove kubeconfig: %w", err)
	}
	state.Kubeconfigs = slices.DeleteFunc(state.Kubeconfigs, func(k string) bool { return k == kubeconfig })
	if t, err = topology.New(state.Scenario); err != nil {
		return err
	}
	if err := p.applyFaults(ctx, t, state.Faults); err != nil {
		return err
	}
	return state.save()
}

func removeCluster(c topology.Cluster) error {
	for _, m := range slices.Backward(machines(c)) {
		if err := machine.KillGroup(path.Join(topology.Cgroup, m.name), killLimit); err != nil {
			return err
		}
		for _, file := range []string{m.socket, specPath(m.name)} {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove cluster %s: %w", c.Name, err)
			}
		}
	}
	if err := network.RemoveCluster(c); err != nil {
		return err
	}
	return removeTree(c.Dir)
}
