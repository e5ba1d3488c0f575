// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"liqo.io/liqo/playground/internal/nat"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/topology"
)

// AddNAT puts clusters behind a new NAT router.
func (p Playground) AddNAT(ctx context.Context, clusters []string) (added nat.Router, err error) {
	err = record.Exclusively(func(state record.State, t topology.Topology) error {
		for _, name := range clusters {
			if _, err := record.Cluster(t, name); err != nil {
				return err
			}
		}
		wanted, router, err := state.NAT.Add(clusters...)
		if err != nil {
			return err
		}
		added = router
		return p.changeNAT(ctx, state, t, wanted)
	})
	return added, err
}

// RemoveNAT removes the NAT router that a cluster is behind.
func (p Playground) RemoveNAT(ctx context.Context, cluster string) error {
	return record.Exclusively(func(state record.State, t topology.Topology) error {
		if _, err := routerOf(state, t, cluster); err != nil {
			return err
		}
		return p.changeNAT(ctx, state, t, state.NAT.Remove(cluster))
	})
}

// RebindNAT makes the NAT router of a cluster map every flow anew; with readdress, from another outside address.
func (p Playground) RebindNAT(cluster string, readdress bool) (router nat.Router, err error) {
	err = record.Exclusively(func(state record.State, t topology.Topology) error {
		if router, err = routerOf(state, t, cluster); err != nil {
			return err
		}
		if readdress {
			state.NAT = state.NAT.Readdress(cluster)
			router, _ = state.NAT.Of(cluster)
		}
		if err := network.RebindNAT(nat.New(router, t)); err != nil {
			return err
		}
		return state.Save()
	})
	return router, err
}

// ForwardNAT has the NAT router of a cluster forward a port of its outside address to it.
func (p Playground) ForwardNAT(f nat.Forward) (router nat.Router, err error) {
	err = record.Exclusively(func(state record.State, t topology.Topology) error {
		if _, err := routerOf(state, t, f.Cluster); err != nil {
			return err
		}
		c, _ := t.Cluster(f.Cluster)
		if !c.NodeCIDR.Contains(f.To.Addr()) {
			return fmt.Errorf(
				"%s is not in the node network of %s, %s, and nothing was changed; name a node or a load-balancer address of it", f.To.Addr(),
				f.Cluster, c.NodeCIDR,
			)
		}
		state.NAT = state.NAT.Forward(f)
		router, _ = state.NAT.Of(f.Cluster)
		if err := network.ForwardNAT(nat.New(router, t)); err != nil {
			return err
		}
		return state.Save()
	})
	return router, err
}

func routerOf(state record.State, t topology.Topology, cluster string) (nat.Router, error) {
	if _, err := record.Cluster(t, cluster); err != nil {
		return nat.Router{}, err
	}
	router, behind := state.NAT.Of(cluster)
	if !behind {
		return nat.Router{}, fmt.Errorf("cluster %s is behind no NAT router; put it behind one with: playground nat add %[1]s", cluster)
	}
	return router, nil
}

// changeNAT makes the routers of wanted that are new or changed, removes those that are gone, adapts the faults and saves. The
// state it starts from comes back if something fails.
func (p Playground) changeNAT(ctx context.Context, state record.State, t topology.Topology, wanted nat.State) error {
	before := state
	state.NAT = wanted
	// The plan refuses a combination before anything is changed.
	if err := checkFaults(t, state); err != nil {
		return err
	}
	err := moveNAT(t, before.NAT, wanted)
	if err == nil {
		err = p.applyFaults(ctx, t, state)
	}
	if err != nil {
		return errors.Join(err, moveNAT(t, wanted, before.NAT))
	}
	return state.Save()
}

// moveNAT removes the routers that only before has, and makes those that only after has.
func moveNAT(t topology.Topology, before, after nat.State) error {
	for _, r := range before.Routers {
		if !after.Has(r) {
			if err := network.RemoveNAT(nat.New(r, t)); err != nil {
				return err
			}
		}
	}
	for _, r := range after.Routers {
		if !before.Has(r) {
			if err := network.AddNAT(nat.New(r, t)); err != nil {
				return err
			}
		}
	}
	return nil
}
