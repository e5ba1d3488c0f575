// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/host"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

func startMachine(r record.Machine) error {
	if r.Cable != nil {
		if err := network.SetPort(*r.Cable, true); err != nil {
			return err
		}
	}
	return machine.Resume(record.SpecPath(r.Name))
}

func stopMachine(c topology.Cluster, r record.Machine) error {
	if r.Cable != nil {
		if err := network.SetPort(*r.Cable, false); err != nil {
			return err
		}
	}
	if err := machine.KillGroup(path.Join(topology.Cgroup, r.Name), killLimit); err != nil {
		return err
	}
	if r.Node == nil {
		return nil
	}
	return network.Forget(c, *r.Node)
}

// Power is a change of a node's power.
type Power string

// Changes of a node's power. Off is abrupt, like a power failure: that is the case worth testing.
const (
	On     Power = "start"
	Off    Power = "stop"
	Reboot Power = "restart"
)

// SwitchNode changes a node's power and returns when the machine is up or gone. Kubernetes reacts
// later.
func (p Playground) SwitchNode(clusterName, nodeName string, power Power) error {
	return record.Exclusively(func(_ record.State, t topology.Topology) error { return switchNode(t, clusterName, nodeName, power) })
}

func switchNode(t topology.Topology, clusterName, nodeName string, power Power) error {
	c, n, err := record.Node(t, clusterName, nodeName)
	if err != nil {
		return err
	}
	r := record.NodeMachine(c, n)
	_, err = machine.HostPID(r.Socket)
	up := err == nil
	switch {
	case power == On && up:
		return fmt.Errorf("node %s is up already", nodeName)
	case power == Off && !up:
		return fmt.Errorf("node %s is down already", nodeName)
	}
	if up {
		if err := stopMachine(c, r); err != nil {
			return err
		}
	}
	if power == Off {
		return nil
	}
	return startMachine(r)
}

// Add starts one more cluster while the others run.
func (p Playground) Add(ctx context.Context, added scenario.Cluster) (c topology.Cluster, err error) {
	err = record.Exclusively(func(state record.State, t topology.Topology) error {
		if _, exists := t.Cluster(added.Name); exists {
			return fmt.Errorf("there is a cluster %q already", added.Name)
		}
		_, c, err = p.add(ctx, state, added)
		return err
	})
	return c, err
}

// add brings a cluster up and returns the new state, which it has saved.
func (p Playground) add(ctx context.Context, state record.State, added scenario.Cluster) (record.State, topology.Cluster, error) {
	s := state.Scenario
	s.Clusters = append(slices.Clone(s.Clusters), added)
	if overlaps := s.Overlaps(); len(overlaps) > 0 {
		return state, topology.Cluster{}, errors.New(overlaps[0].Text)
	}
	t, err := topology.New(s)
	if err != nil {
		return state, topology.Cluster{}, err
	}
	c, _ := t.Cluster(added.Name)
	// Up has checked the machine; only the free disk space may have changed.
	need := host.Needs{Network: t.Scenario.Network, Dir: topology.StateDir, FreeBytes: baseBytes + uint64(len(c.Nodes))*nodeBytes}
	if err := host.Check(need); err != nil {
		return state, c, err
	}
	// Leftovers of an interrupted attempt would be in the way.
	if err := removeCluster(c); err != nil {
		return state, c, err
	}
	if err := p.Builder.Complete(ctx, build.Set{Dir: state.Set}, build.Extras(added)...); err != nil {
		return state, c, err
	}
	if err := p.addCluster(ctx, state, t, c); err != nil {
		return state, c, errors.Join(err, removeCluster(c))
	}
	state.Scenario = t.Scenario
	if err := state.WriteKubeconfig(c); err != nil {
		return state, c, err
	}
	return state, c, state.Save()
}

func (p Playground) addCluster(ctx context.Context, state record.State, t topology.Topology, c topology.Cluster) error {
	if err := network.AddCluster(c); err != nil {
		return err
	}
	if err := p.applyFaults(ctx, t, state); err != nil {
		return err
	}
	return p.startCluster(ctx, build.Set{Dir: state.Set}, c)
}

// Remove removes one cluster while the others run.
func (p Playground) Remove(ctx context.Context, name string) error {
	return record.Exclusively(func(state record.State, t topology.Topology) error { return p.removeNamed(ctx, state, t, name) })
}

func (p Playground) removeNamed(ctx context.Context, state record.State, t topology.Topology, name string) error {
	c, err := record.Cluster(t, name)
	if err != nil {
		return err
	}
	if len(t.Clusters) == 1 {
		return fmt.Errorf("%s is the last cluster; remove the whole playground with: playground down", name)
	}
	step := p.Progress.Step("remove cluster " + name)
	err = removeProxies(&state, c)
	if err == nil {
		err = removeCluster(c)
	}
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
	return p.changeNAT(ctx, state, t, state.NAT.Without(name))
}

func removeCluster(c topology.Cluster) error {
	for _, m := range slices.Backward(record.Machines(c)) {
		if err := machine.KillGroup(path.Join(topology.Cgroup, m.Name), killLimit); err != nil {
			return err
		}
		for _, file := range []string{m.Socket, record.SpecPath(m.Name)} {
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
