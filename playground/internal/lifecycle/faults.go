// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"liqo.io/liqo/playground/internal/fault"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/nat"
	"liqo.io/liqo/playground/internal/netem"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

const (
	routerPath = topology.NetNSDir + "/" + topology.Router
	emulator   = "wan.netem"
	// NetemCommand is the hidden first argument by which this program is the link emulator.
	NetemCommand = "netem"
)

// emulatorSocket is the control socket of the emulator, emulatorConfig the file with its initial
// configuration.
const (
	emulatorSocket = topology.RuntimeDir + "/netem.sock"
	emulatorConfig = topology.StateDir + "/wan/netem.json"
)

// RunEmulator is the body of NetemCommand. It returns when ctx ends.
func RunEmulator(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return netem.Run(ctx, emulatorSocket) })
	group.Go(func() error {
		data, err := os.ReadFile(emulatorConfig)
		if err != nil {
			return fmt.Errorf("read the link emulator's configuration: %w", err)
		}
		var wanted fault.Emulation
		if err := json.Unmarshal(data, &wanted); err != nil {
			return fmt.Errorf("read the link emulator's configuration: %w", err)
		}
		if err := answers(ctx); err != nil {
			return err
		}
		_, err = netem.Apply(ctx, emulatorSocket, wanted)
		return err
	})
	return group.Wait()
}

// answers waits until the emulator answers.
func answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		_, err := netem.ReadStatus(ctx, emulatorSocket)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the link emulator does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Fault changes the faults of the playground's links; names are the clusters that it
// concerns, change gets the present faults and returns the wanted ones. Nothing
// changes if a name is unknown or a fault impossible.
func (p Playground) Fault(ctx context.Context, names []string, change func(fault.State) fault.State) (fault.State, error) {
	var now fault.State
	err := record.Exclusively(func(state record.State, t topology.Topology) error {
		if err := sites(t, state.NAT).Check(names...); err != nil {
			return err
		}
		state.Faults = change(state.Faults)
		now = state.Faults
		if err := p.applyFaults(ctx, t, state); err != nil {
			return err
		}
		return state.Save()
	})
	return now, err
}

// Counters reads what the faults of the links that join all the named clusters have dropped and let through.
func (p Playground) Counters(names []string) ([]fault.Counter, error) {
	state, t, err := record.LoadComplete()
	if err != nil {
		return nil, err
	}
	if err := sites(t, state.NAT).Check(names...); err != nil {
		return nil, err
	}
	ruleset, err := network.Output(routerPath, "", "nft", "--json", "list", "ruleset")
	if err != nil {
		return nil, fmt.Errorf("read the counters of the faults: %w", err)
	}
	return fault.ReadCounters(ruleset, names...)
}

// sites are the ends that links can have, as the router sees them.
func sites(t topology.Topology, routers nat.State) fault.Topology {
	out := fault.Topology{fault.Host: {Prefix: t.HostNet, Interface: topology.RouterHostLink}}
	for _, c := range t.Clusters {
		site := fault.Site{Prefix: c.NodeCIDR, Interface: c.Bridge}
		if router, behind := routers.Of(c.Name); behind {
			site.Behind = router.InsideLink()
		}
		out[c.Name] = site
	}
	return out
}

// checkFaults refuses faults that the present network cannot have.
func checkFaults(t topology.Topology, state record.State) error {
	_, err := fault.NewPlan(state.Faults, sites(t, state.NAT))
	return err
}

// applyFaults puts the faults of the state in force. It starts the emulator the first time it is needed. The
// emulator then stays, because its removal would lose packets in flight.
func (p Playground) applyFaults(ctx context.Context, t topology.Topology, state record.State) error {
	plan, err := fault.NewPlan(state.Faults, sites(t, state.NAT))
	if err != nil {
		return err
	}
	if err := p.emulate(ctx, plan.Emulation); err != nil {
		return err
	}
	if err := network.Run(routerPath, plan.NFT, "nft", "-f", "-"); err != nil {
		return fmt.Errorf("put the faults in force: %w", err)
	}
	return nil
}

func (p Playground) emulate(ctx context.Context, wanted fault.Emulation) error {
	_, err := machine.HostPID(topology.Socket(emulator))
	up := err == nil
	if !up && len(wanted.Pairs) == 0 {
		return nil
	}
	// Written first: an emulator that crashes restarts with the requested faults.
	data, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("encode the link emulator's configuration: %w", err)
	}
	if err := writeFile(emulatorConfig, data, 0o600); err != nil {
		return err
	}
	if !up {
		if err := startEmulator(ctx); err != nil {
			return err
		}
	}
	if _, err := netem.Apply(ctx, emulatorSocket, wanted); err != nil {
		return fmt.Errorf("configure the link emulator: %w", err)
	}
	return nil
}

func startEmulator(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir := filepath.Join(topology.StateDir, "wan")
	m := spec.Machine{
		Name: emulator, Hostname: topology.Router, NetNS: routerPath,
		LogDir: filepath.Join(dir, "log"), Socket: topology.Socket(emulator),
		Components: []spec.Component{{Name: "netem", Argv: []string{self, NetemCommand}}},
	}
	if err := machine.Start(m, record.SpecPath(emulator)); err != nil {
		return err
	}
	if err := answers(ctx); err != nil {
		return fmt.Errorf("%w; its log is in %s", err, m.LogDir)
	}
	return nil
}
