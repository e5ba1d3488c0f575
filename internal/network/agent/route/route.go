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
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/reach"
)

// With several lanes the probes decide how long users notice a failure; with one lane they only report it, and each costs the gateways of both clusters.
var (
	manyLanes = probe.Pace{Up: 50 * time.Millisecond, Other: 50 * time.Millisecond}
	oneLane   = probe.Pace{Up: 2 * time.Second, Other: 500 * time.Millisecond}
)

// Host is the node.
type Host interface {
	agent.Host
	// NextHops returns the next hop of each of our routes, by destination.
	NextHops() (map[netip.Prefix]netip.Addr, error)
	// Reaches returns what leads from the node elsewhere, without Liqo.
	Reaches() (reach.Facts, error)
}

type Options struct {
	// Namespace is the install namespace, DaemonSet the name of the DaemonSet that runs this role there.
	Namespace, DaemonSet string
	Node                 string
	// VXLANPort of the overlay.
	VXLANPort uint16
	// MTU bounds the MTU of the tunnel; 0: as much as the pods' network carries.
	MTU int
	// Restricted: peers open no connections to this node.
	Restricted bool
	// PathMTU returns the MTU of the path to a gateway pod.
	PathMTU func(to netip.Addr) (mtu int, link string, err error)
	// Resolvers returns the text of the resolv.conf of the node; nil for none.
	Resolvers func() (string, error)
	// ReportPause is the pause between two looks at the node's networks. Default: 10 seconds.
	ReportPause time.Duration
	// ProbePort replaces hoststate.ProbePort in tests.
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

	// chosen is the lane to each peer, podMTU the MTU that was found last. Only the loop uses them.
	chosen map[string]int
	podMTU int
	// moves limits how often a peer is led over another lane.
	moves *ratelimit.Limiter[string]
	// recalled: the lanes that the host used when this process started have been read.
	recalled bool
}

// New returns a node's agent. It sends no request and changes nothing before Run.
func New(cfg *rest.Config, host Host, o Options) (*Route, error) {
	r := &Route{o: o, cfg: cfg, host: host, chosen: map[string]int{}, moves: newMoves()}
	r.loop = agent.NewLoop(host, r, o.Log)
	r.prober = probe.New(probe.Options{Port: o.ProbePort, Changed: r.loop.Trigger})
	var err error
	r.caches, err = agent.NewCaches(cfg, agent.Wants{Namespace: o.Namespace}, r.loop.Trigger)
	return r, err
}

// Run works until ctx ends. Then it leaves the host as it is, unless the agent was uninstalled.
func (r *Route) Run(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return r.caches.Run(working) })
	group.Go(func() error { return r.prober.Run(working) })
	group.Go(func() error { return r.loop.Run(working) })
	group.Go(func() error { return r.report(working) })
	err := group.Wait()
	if ctx.Err() == nil {
		return err // our own failure does not mean that the agent was uninstalled
	}
	return errors.Join(err, r.cleanIfUninstalled(context.WithoutCancel(ctx)))
}

// Ready reports whether a plan was applied once.
func (r *Route) Ready() bool { return r.loop.Ready() }

// Alive is false if the loop is stuck.
func (r *Route) Alive() bool { return r.loop.Alive() }

func (r *Route) Plan(snapshot plan.Snapshot) (hoststate.State, error) { return plan.ForNode(snapshot) }

// Observe makes a snapshot from the listed objects and the results of the probes.
func (r *Route) Observe(ctx context.Context, now time.Time) agent.Observation {
	objects, known, err := r.caches.Objects(ctx)
	if !known {
		return agent.Observation{Err: err}
	}
	view, wrong := agent.NewView(objects)
	s := &view.Snapshot
	s.Local.VXLANPort, s.Restricted = r.o.VXLANPort, r.o.Restricted
	s.Self = plan.Self{Node: r.o.Node}
	observed := agent.Observation{Known: true, Err: errors.Join(err, wrong)}
	for _, node := range s.Nodes {
		if node.Name == r.o.Node {
			s.Self.Address = node.Address
		}
	}
	if len(s.Peers) > 0 {
		observed.Err = errors.Join(observed.Err, r.measure(s.Gateways))
		if s.Self.PodMTU = r.podMTU; s.Self.PodMTU == 0 {
			// No packet can reach a peer yet, but meanwhile none may leave unencrypted.
			s.Self.PodMTU = usualMTU
		}
	}
	if err := r.recall(s); err != nil {
		return agent.Observation{Err: errors.Join(observed.Err, err)}
	}
	if again := r.choose(s, now); again > 0 {
		observed.RequeueAt = now.Add(again)
	}
	observed.Snapshot = *s
	return observed
}

// recall takes over the lanes that the previous process chose: that process knew which of them work, and this one does not know yet.
// Routing packets back to a failed lane until the first probes time out would defeat the purpose of several lanes.
func (r *Route) recall(s *plan.Snapshot) error {
	if r.recalled {
		return nil
	}
	if len(s.Peers) > 0 {
		nextHops, err := r.host.NextHops()
		if err != nil {
			return fmt.Errorf("read which lanes this node used before: %w", err)
		}
		for _, peer := range s.Peers {
			for lane := range ipam.MaxLanes {
				if via, led := nextHops[peer.RemotePods]; led && via == ipam.ProbeAddress(s.Local.External, lane) {
					r.chosen[peer.ClusterID] = lane
				}
			}
		}
	}
	r.recalled = true
	return nil
}

// usualMTU is assumed for links that are not known yet.
const usualMTU = 1500

// measure sets the MTU to the smallest one towards a gateway. Without gateways the last value stays.
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
		err = errors.New("no gateway pod has an address yet; see `kubectl get pods -A -l net.liqo.io/gateway=active -o wide`")
	}
	return err
}

func lanes(s *plan.Snapshot, peer plan.Peer) (both []int) {
	for _, gateway := range s.Gateways {
		if slices.ContainsFunc(peer.Lanes, func(lane plan.PeerLane) bool { return lane.Number == gateway.Lane }) {
			both = append(both, gateway.Lane)
		}
	}
	return both
}

// A peer is led over another lane moveBurst times at once, then once per movePause: the other end decides which of its lanes answer, and each move
// changes this host.
const (
	moveBurst = 20
	movePause = 5 * time.Second
)

func newMoves() *ratelimit.Limiter[string] {
	return ratelimit.New[string](rate.Every(movePause), moveBurst, 1000)
}

// choose sets the lane to each peer. It returns when to choose again although no probe changes; 0: no such time.
func (r *Route) choose(s *plan.Snapshot, now time.Time) (again time.Duration) {
	results, kept := r.prober.Results(), make(map[string]int, len(s.Peers))
	for i := range s.Peers {
		peer := &s.Peers[i]
		present, known := r.chosen[peer.ClusterID]
		var pause time.Duration
		peer.Lane, pause = r.lead(peer.ClusterID, lanes(s, *peer), func(lane int) probe.Status { return results[target(*peer, lane)].Status }, now)
		if pause > 0 && (again == 0 || pause < again) {
			again = pause
		}
		if known && peer.Lane != present {
			r.o.Log.Info("another lane is used", "peer", peer.ClusterID, "lane", peer.Lane, "before", present)
		}
		kept[peer.ClusterID] = peer.Lane
	}
	r.chosen = kept
	return again
}

// lead returns the lane to a peer, and when to choose again.
func (r *Route) lead(peer string, both []int, status func(lane int) probe.Status, now time.Time) (lane int, again time.Duration) {
	present, known := r.chosen[peer]
	lane, clear := probe.Choose(present, both, status)
	switch {
	case known && lane != present && slices.Contains(both, present) && !r.moves.Allow(peer, now):
		return present, movePause
	case !clear:
		return lane, probe.Undecided
	}
	return lane, 0
}

func target(peer plan.Peer, lane int) probe.Target {
	return probe.Target{ClusterID: peer.ClusterID, Lane: lane, Address: ipam.ProbeAddress(peer.RemoteExternal, lane)}
}

// Done aims the probes at the planned targets, and reports their results to the gateways.
func (r *Route) Done(iteration agent.Iteration) {
	if !iteration.Known {
		return // the last plan stays
	}
	s, state := iteration.Snapshot, iteration.State
	aim := probe.Aim{Pace: oneLane, Node: r.o.Node}
	results := r.prober.Results()
	for _, peer := range s.Peers {
		observation, both := probe.Observation{ClusterID: peer.ClusterID, Lane: -1}, lanes(&s, peer)
		if len(both) > 1 {
			aim.Pace = manyLanes
		}
		judged := len(both) == 0
		for _, lane := range both {
			to := target(peer, lane)
			if !isPlanned(state, to.Address) {
				continue
			}
			aim.Targets = append(aim.Targets, to)
			judged = judged || results[to].State != probe.Unknown
			if results[to].State == probe.Up {
				observation.Up = append(observation.Up, lane)
			}
		}
		if slices.Contains(observation.Up, peer.Lane) {
			observation.Lane = peer.Lane
		}
		if judged { // an earlier report would claim that no lane works
			aim.Observations = append(aim.Observations, observation)
		}
	}
	for _, gateway := range s.Gateways {
		if address := ipam.ProbeAddress(s.Local.External, gateway.Lane); isPlanned(state, address) {
			aim.Gateways = append(aim.Gateways, address)
		}
	}
	r.prober.Aim(aim)
}

// isPlanned reports whether packets for a gateway's address go into the overlay. Targets that the plan refused get no probe.
func isPlanned(state hoststate.State, address netip.Addr) bool {
	return slices.ContainsFunc(state.Routes, func(route hoststate.Route) bool {
		return route.Link == hoststate.VXLANLink && route.To == netip.PrefixFrom(address, address.BitLen())
	})
}
