// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/health"
	"liqo.io/liqo/playground/internal/host"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// UpOptions are the choices of Up.
type UpOptions struct {
	// KubeconfigDir receives CLUSTER.yaml for each cluster; empty means inside StateDir.
	KubeconfigDir string
	// Keep leaves the result of a failed start for inspection.
	Keep bool
}

// bytes of disk that a playground needs: for itself, for each real node, for a first build.
const (
	baseBytes  = 1 << 30
	nodeBytes  = 700 << 20
	buildBytes = 8 << 30
)

// Up brings a scenario up. It returns changed = false if exactly this scenario was up and
// healthy already. On failure it removes all it has made, unless Keep is set.
func (p Playground) Up(ctx context.Context, s scenario.Scenario, o UpOptions) (changed bool, err error) {
	t, err := topology.New(s)
	if err != nil {
		return false, err
	}
	unlock, err := record.Lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	state, err := record.Load()
	switch {
	case err == nil && state.Complete:
		return p.already(ctx, state, s, o)
	case err != nil && !errors.Is(err, record.ErrNone):
		return false, err
	}
	if left, err := leftovers(); err != nil {
		return false, err
	} else if len(left) > 0 {
		p.Warn("removing the leftovers of an earlier playground: %v", left)
		if err := p.clean(); err != nil {
			return false, err
		}
	}
	extras := build.Extras(s.Clusters...)
	_, built, err := p.Builder.Find(extras...)
	if err != nil {
		return false, err
	}
	need := needs(t)
	if !built {
		need.Go, need.FreeBytes = p.Builder.Go(), need.FreeBytes+buildBytes
	}
	if err := host.Check(need); err != nil {
		return false, err
	}
	set, err := p.Builder.Build(ctx, extras...)
	if err != nil {
		return false, err
	}
	if err := p.create(ctx, t, set, s, o); err != nil {
		if !o.Keep {
			err = errors.Join(err, p.clean())
		}
		return false, err
	}
	return true, nil
}

func needs(t topology.Topology) host.Needs {
	n := host.Needs{Network: t.Scenario.Network, Dir: topology.StateDir, FreeBytes: baseBytes}
	for _, c := range t.Clusters {
		n.FreeBytes += uint64(len(c.Nodes)) * nodeBytes
	}
	return n
}

// already handles an Up while a playground is up.
func (p Playground) already(ctx context.Context, state record.State, s scenario.Scenario, o UpOptions) (changed bool, err error) {
	if !reflect.DeepEqual(normal(state.Requested), normal(s)) {
		return false, fmt.Errorf(
			"the playground %q is up already, and a machine has only one; remove it first with: playground down (or add a cluster to it: playground add)",
			state.Requested.Name,
		)
	}
	t, err := topology.New(state.Scenario)
	if err != nil {
		return false, err
	}
	for _, c := range t.Clusters {
		revived, err := p.revive(ctx, build.Set{Dir: state.Set}, c)
		if err != nil {
			return changed, err
		}
		changed = changed || revived
	}
	for _, missing := range s.Clusters { // removed meanwhile
		if _, there := t.Cluster(missing.Name); there {
			continue
		}
		if state, _, err = p.add(ctx, state, missing); err != nil {
			return changed, err
		}
		changed = true
	}
	if t, err = topology.New(state.Scenario); err != nil {
		return changed, err
	}
	if o.KubeconfigDir == "" || o.KubeconfigDir == state.KubeconfigDir {
		return changed, nil
	}
	state.KubeconfigDir = o.KubeconfigDir // the earlier files stay until down
	return true, state.Finish(t)
}

// normal makes empty and missing lists equal.
func normal(s scenario.Scenario) scenario.Scenario {
	s.Clusters = slices.Clone(s.Clusters)
	for i, c := range s.Clusters {
		if len(c.Nodes) == 0 {
			s.Clusters[i].Nodes = nil
		}
	}
	if len(s.Faults.Links) == 0 {
		s.Faults.Links = nil
	}
	return s
}

// revive starts the machines of a cluster that are down.
func (p Playground) revive(ctx context.Context, set build.Set, c topology.Cluster) (changed bool, err error) {
	for _, m := range record.Machines(c) {
		_, err := machine.NewClient(m.Socket).Components(ctx)
		if err == nil {
			continue
		}
		if !errors.Is(err, machine.ErrDown) {
			return changed, err
		}
		p.Warn("%s was down; starting it", m.Name)
		if err := startMachine(m); err != nil {
			return changed, err
		}
		changed = true
	}
	if !changed {
		return false, nil
	}
	return true, p.await(ctx, set, c)
}

func (p Playground) create(ctx context.Context, t topology.Topology, set build.Set, asked scenario.Scenario, o UpOptions) error {
	settings, err := host.SaveSettings()
	if err != nil {
		return err
	}
	state := record.State{
		Scenario: t.Scenario, Requested: asked, Faults: t.Scenario.Faults, Set: set.Dir,
		KubeconfigDir: o.KubeconfigDir, Settings: settings,
	}
	if state.KubeconfigDir == "" {
		state.KubeconfigDir = filepath.Join(topology.StateDir, "kubeconfig")
	}
	if err := state.Save(); err != nil {
		return err
	}
	if err := host.RaiseSettings(settings); err != nil {
		return err
	}
	step := p.Progress.Step("lay the network")
	err = layNetwork(t)
	step.End(err)
	if err != nil {
		return err
	}
	if err := p.applyFaults(ctx, t, state); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range t.Clusters {
		group.Go(func() error { return p.startCluster(ctx, set, c) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return state.Finish(t)
}

func layNetwork(t topology.Topology) error {
	if err := network.SetupHost(t); err != nil {
		return err
	}
	for _, c := range t.Clusters {
		if err := network.AddCluster(c); err != nil {
			return err
		}
	}
	return nil
}

// startCluster writes a cluster's files, starts its machines and waits until it is Ready.
func (p Playground) startCluster(ctx context.Context, set build.Set, c topology.Cluster) (err error) {
	step := p.Progress.Step("start cluster " + c.Name)
	defer func() { step.End(err) }()
	plan, err := cluster.New(c, set.Tools(), cluster.Host{RestrictOOMScore: !host.MayLowerOOMScore()})
	if err != nil {
		return err
	}
	if err := write(c, plan); err != nil {
		return err
	}
	if err := machine.Start(plan.ControlPlane, record.SpecPath(plan.ControlPlane.Name)); err != nil {
		return err
	}
	group, _ := errgroup.WithContext(ctx)
	for _, node := range plan.Nodes {
		group.Go(func() error { return machine.Start(node, record.SpecPath(node.Name)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return health.Wait(ctx, set, c, step)
}

// await waits for a cluster that was changed.
func (p Playground) await(ctx context.Context, set build.Set, c topology.Cluster) (err error) {
	step := p.Progress.Step("wait for cluster " + c.Name)
	defer func() { step.End(err) }()
	return health.Wait(ctx, set, c, step)
}

// OnNetwork returns the scenario with its node networks in another prefix, except those that the
// file states.
func OnNetwork(s scenario.Scenario, network netip.Prefix) (scenario.Scenario, error) {
	s.Network = network
	if overlaps := s.Overlaps(); len(overlaps) > 0 {
		return s, errors.New(overlaps[0].Text)
	}
	return s, nil
}
