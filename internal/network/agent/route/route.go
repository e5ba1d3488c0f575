// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
)

// With several lanes the probes decide how long a failure is felt; with one they only tell.
var (
	manyLanes = probe.Pace{Up: 50 * time.Millisecond, Other: 50 * time.Millisecond}
	oneLane   = probe.Pace{Up: 500 * time.Millisecond, Other: 500 * time.Millisecond}
)

// Host is the node.
type Host interface {
	agent.Host
	// Ways says where our routes lead, by destination.
	Ways() (map[netip.Prefix]netip.Addr, error)
}

// Options of a node.
type Options struct {
	// Namespace is the install namespace, DaemonSet the name of the one that runs this role there.
	Namespace, DaemonSet string
	Node                 string
	// VXLANPort of the overlay.
	VXLANPort uint16
	// MTU is the largest that the tunnel may have; 0: as much as the pods' network carries.
	MTU int
	// PathMTU finds the MTU of the way to a gateway pod.
	PathMTU func(to netip.Addr) (mtu int, link string, err error)
	// ProbePort is another port than the usual one, for tests.
	ProbePort uint16
	Log       logr.Logger
}

// Route is the role. Make it with New.
type Route struct {
	o      Options
	cfg    *rest.Config
	host   Host
	caches *agent.Caches
	loop   *agent.Loop
	prober *probe.Prober

	// The loop's own: which lane leads to which peer, and the MTU that was found last.
	chosen map[string]int
	podMTU int
	// recalled: the lanes that the host led to when this process began are known.
	recalled bool
}

// New makes a node's agent. Nothing is asked and nothing changed before Run.
func New(cfg *rest.Config, host Host, o Options) (*Route, error) {
	r := &Route{o: o, cfg: cfg, host: host, chosen: map[string]int{}}
	r.loop = agent.NewLoop(host, r, o.Log)
	r.prober = probe.New(probe.Options{Port: o.ProbePort, Changed: r.loop.Trigger})
	var err error
	r.caches, err = agent.NewCaches(cfg, agent.Wants{Namespace: o.Namespace}, r.loop.Trigger)
	return r, err
}

// Run works until ctx ends, then leaves the host as it is, unless it is not to come back.
func (r *Route) Run(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return r.caches.Run(working) })
	group.Go(func() error { return r.prober.Run(working) })
	group.Go(func() error { return r.loop.Run(working) })
	err := group.Wait()
	if ctx.Err() == nil {
		return err // a fault of ours says nothing about the installation
	}
	return errors.Join(err, r.farewell(context.WithoutCancel(ctx)))
}

// Ready tells whether the host was brought to a plan once, Alive whether the loop turns.
func (r *Route) Ready() bool { return r.loop.Ready() }

// Alive is false if the loop is stuck.
func (r *Route) Alive() bool { return r.loop.Alive() }

// Plan of a node.
func (r *Route) Plan(snapshot plan.Snapshot) (plan.HostState, error) { return plan.ForNode(snapshot) }

// Look makes a snapshot of what is listed and probed.
func (r *Route) Look(ctx context.Context, now time.Time) agent.Look {
	objects, known, err := r.caches.Objects(ctx)
	if !known {
		return agent.Look{Err: err}
	}
	view, wrong := agent.NewView(objects)
	s := &view.Snapshot
	s.Local.VXLANPort = r.o.VXLANPort
	s.Self = plan.Self{Node: r.o.Node}
	look := agent.Look{Known: true, Err: errors.Join(err, wrong)}
	for _, node := range s.Nodes {
		if node.Name == r.o.Node {
			s.Self.Address = node.Address
		}
	}
	if len(s.Peers) > 0 {
		look.Err = errors.Join(look.Err, r.measure(s.Gateways))
		if s.Self.PodMTU = r.podMTU; s.Self.PodMTU == 0 {
			// Nothing crosses yet, but what is for peers must not leave unencrypted meanwhile.
			s.Self.PodMTU = usualMTU
		}
	}
	if err := r.recall(s); err != nil {
		return agent.Look{Err: errors.Join(look.Err, err)}
	}
	if clear := r.choose(s); !clear {
		look.Again = now.Add(probe.Undecided)
	}
	look.Snapshot = *s
	return look
}

// recall takes over the lanes that the process before this one has chosen: it knew which of them work, and this one does not know yet. To lead
// packets back to a lane that fails, only to notice a moment later, would cost what several lanes are for.
func (r *Route) recall(s *plan.Snapshot) error {
	if r.recalled {
		return nil
	}
	if len(s.Peers) > 0 {
		ways, err := r.host.Ways()
		if err != nil {
			return fmt.Errorf("find out which lanes this node used before: %w", err)
		}
		for _, peer := range s.Peers {
			for lane := range ipam.MaxLanes {
				if via, led := ways[peer.RemotePods]; led && via == ipam.ProbeAddress(s.Local.External, lane) {
					r.chosen[peer.ClusterID] = lane
				}
			}
		}
	}
	r.recalled = true
	return nil
}

// usualMTU is assumed of links that are not known yet.
const usualMTU = 1500

// measure finds the MTU towards the gateways, the smallest of all. Without any gateway it is what it was.
func (r *Route) measure(gateways []plan.Gateway) (err error) {
	smallest := 0
	for _, gateway := range gateways {
		mtu, _, failed := r.o.PathMTU(gateway.Address)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("find the MTU towards gateway %d at %s: %w", gateway.Lane, gateway.Address, failed))
			continue
		}
		if smallest == 0 || mtu < smallest {
			smallest = mtu
		}
	}
	if smallest > 0 && r.o.MTU > 0 {
		smallest = min(smallest, r.o.MTU+plan.Overhead)
	}
	if smallest > 0 {
		r.podMTU = smallest
	}
	if r.podMTU == 0 && err == nil {
		err = errors.New("no gateway pod has an address yet; see the pods with the label net.liqo.io/gateway=active")
	}
	return err
}

// lanes are those that exist at both ends.
func lanes(s *plan.Snapshot, peer plan.Peer) (both []int) {
	for _, gateway := range s.Gateways {
		if slices.ContainsFunc(peer.Lanes, func(lane plan.PeerLane) bool { return lane.Number == gateway.Lane }) {
			both = append(both, gateway.Lane)
		}
	}
	return both
}

// choose says which lane leads to each peer, and whether that is clear of all.
func (r *Route) choose(s *plan.Snapshot) (clear bool) {
	clear = true
	results, kept := r.prober.Results(), make(map[string]int, len(s.Peers))
	for i := range s.Peers {
		peer := &s.Peers[i]
		present, known := r.chosen[peer.ClusterID]
		var sure bool
		peer.Lane, sure = probe.Choose(present, lanes(s, *peer), func(lane int) probe.Status { return results[target(*peer, lane)].Status })
		clear = clear && sure
		if known && peer.Lane != present {
			r.o.Log.Info("another lane is used", "peer", peer.ClusterID, "lane", peer.Lane, "before", present)
		}
		kept[peer.ClusterID] = peer.Lane
	}
	r.chosen = kept
	return clear
}

func target(peer plan.Peer, lane int) probe.Target {
	return probe.Target{ClusterID: peer.ClusterID, Lane: lane, Address: ipam.ProbeAddress(peer.RemoteExternal, lane)}
}

// Done aims the probes at what was planned, and tells the gateways what is seen.
func (r *Route) Done(round agent.Round) {
	if !round.Known {
		return // what was planned last goes on
	}
	s, state := round.Snapshot, round.State
	aim := probe.Aim{Pace: oneLane, Node: r.o.Node}
	results := r.prober.Results()
	for _, peer := range s.Peers {
		sight, both := probe.Observation{ClusterID: peer.ClusterID, Lane: -1}, lanes(&s, peer)
		if len(both) > 1 {
			aim.Pace = manyLanes
		}
		judged := len(both) == 0
		for _, lane := range both {
			leg := target(peer, lane)
			if !isPlanned(state, leg.Address) {
				continue
			}
			aim.Targets = append(aim.Targets, leg)
			judged = judged || results[leg].State != probe.Unknown
			if results[leg].State == probe.Up {
				sight.Up = append(sight.Up, lane)
			}
		}
		if slices.Contains(sight.Up, peer.Lane) {
			sight.Lane = peer.Lane
		}
		if judged { // before that, to say nothing is not to say that nothing works
			aim.Observations = append(aim.Observations, sight)
		}
	}
	for _, gateway := range s.Gateways {
		if address := ipam.ProbeAddress(s.Local.External, gateway.Lane); isPlanned(state, address) {
			aim.Gateways = append(aim.Gateways, address)
		}
	}
	r.prober.Aim(aim)
}

// isPlanned tells whether packets for an address of a gateway's go into the overlay: nothing is sent to what the plan refused.
func isPlanned(state plan.HostState, address netip.Addr) bool {
	return slices.ContainsFunc(state.Routes, func(route plan.Route) bool {
		return route.Link == plan.VXLANLink && route.To == netip.PrefixFrom(address, address.BitLen())
	})
}
