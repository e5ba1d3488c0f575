// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
)

// changingKey is how often a peer is looked at that changes its key: until we follow, its packets are lost.
const changingKey = 100 * time.Millisecond

// pace of the probes to peers.
var pace = probe.Pace{Up: 500 * time.Millisecond, Other: 200 * time.Millisecond}

// Host is the pod's own network.
type Host interface {
	agent.Host
	// Tunnel says how the tunnel's peers stand.
	Tunnel() ([]host.TunnelPeer, error)
	// Implementation of WireGuard: kernel or userspace.
	Implementation() string
}

// Options of a gateway.
type Options struct {
	// Namespace is the install namespace, KeysSecret the name of the Secret with the gateways' keys there.
	Namespace, KeysSecret string
	Lane                  int
	// Node the pod runs on, and the pod's Address.
	Node    string
	Address netip.Addr
	// ListenPort of the tunnel, VXLANPort of the overlay.
	ListenPort int
	VXLANPort  uint16
	// MTU is the largest that the tunnel may have; 0: as much as the pod's link carries.
	MTU int
	// Pods: the nodes of this cluster may have no pod networks of their own.
	Pods bool
	Keys *Keyring
	// Uplink finds the pod's link and its MTU; Lookup asks DNS. nil: the usual ones.
	Uplink func() (name string, mtu int, err error)
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// ProbePort is another port than the usual one, for tests.
	ProbePort uint16
	Log       logr.Logger
}

// Gateway is the role. Make it with New.
type Gateway struct {
	o        Options
	host     Host
	caches   *agent.Caches
	loop     *agent.Loop
	prober   *probe.Prober
	resolver *resolver

	// mu is held for moments only, and never while the host is asked: who reads the report must not wait for a kernel that is busy.
	mu     sync.Mutex
	peers  map[string]*peer
	tunnel map[string]host.TunnelPeer
	round  agent.Round
	views  map[string]agent.PeerView
	news   chan struct{}

	// sightings have a lock of their own: what waits for it delays the answers to probes.
	sighting  sync.Mutex
	sightings probe.Observations
}

// peer is what a gateway remembers of one.
type peer struct {
	dialer dialer
	keys   remoteKeys
	// problem is why it cannot be tried.
	problem string
}

// New makes a gateway. Nothing is asked and nothing changed before Run.
func New(cfg *rest.Config, host Host, o Options) (*Gateway, error) {
	if o.Uplink == nil {
		o.Uplink = func() (string, int, error) { return uplink(o.Address) }
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	g := &Gateway{o: o, host: host, peers: map[string]*peer{}, news: make(chan struct{})}
	g.loop = agent.NewLoop(host, g, o.Log)
	g.resolver = &resolver{lookup: o.Lookup, changed: g.loop.Trigger}
	g.prober = probe.New(probe.Options{Port: o.ProbePort, Changed: g.loop.Trigger, Received: g.hear})
	var err error
	g.caches, err = agent.NewCaches(cfg, agent.Wants{Namespace: o.Namespace, Mappings: true, KeysSecret: o.KeysSecret, Pods: o.Pods}, g.loop.Trigger)
	return g, err
}

// Run works until ctx ends. What it made stays: it ends with the pod.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.caches.Run(ctx) })
	group.Go(func() error { return g.prober.Run(ctx) })
	group.Go(func() error { return g.loop.Run(ctx) })
	return group.Wait()
}

// Ready tells whether the host was brought to a plan once, Alive whether the loop turns.
func (g *Gateway) Ready() bool { return g.loop.Ready() }

// Alive is false if the loop is stuck.
func (g *Gateway) Alive() bool { return g.loop.Alive() }

// Plan of a gateway.
func (g *Gateway) Plan(snapshot plan.Snapshot) (plan.HostState, error) {
	return plan.ForGateway(snapshot)
}

// Look makes a snapshot of what is listed and measured.
func (g *Gateway) Look(ctx context.Context, now time.Time) agent.Look {
	objects, known, err := g.caches.Objects(ctx)
	if !known {
		return agent.Look{Err: err}
	}
	if isReplaced(objects.Gateways, g.o.Address, g.o.Lane) {
		objects.Tunnels = nil // nothing is left to do
	}
	view, wrong := agent.NewView(objects)
	s := &view.Snapshot
	s.Local.VXLANPort = g.o.VXLANPort
	s.Self = plan.Self{Node: g.o.Node, Lane: g.o.Lane, Address: g.o.Address, ListenPort: g.o.ListenPort}
	look := agent.Look{Known: true, Err: errors.Join(err, wrong)}
	if len(s.Peers) > 0 {
		look.Known, err = g.lookAtSelf(objects, &s.Self)
		look.Err = errors.Join(look.Err, err)
	}
	look.Again = g.lookAtPeers(now, view)
	look.Snapshot = view.Snapshot
	return look
}

// lookAtSelf is false if a gateway cannot be planned, because something of itself is not known.
func (g *Gateway) lookAtSelf(objects agent.Objects, self *plan.Self) (known bool, err error) {
	var problem error
	if self.PublicKey, err = g.o.Keys.own(objects.Keys, g.o.Lane); self.PublicKey == "" {
		problem = fmt.Errorf("the Secret %s in namespace %s has no key for lane %d yet; the controller manager makes it", g.o.KeysSecret, g.o.Namespace, g.o.Lane)
	}
	name, mtu, failed := g.o.Uplink()
	if g.o.MTU > 0 {
		mtu = min(mtu, g.o.MTU+plan.Overhead)
	}
	self.Uplink, self.PodMTU = name, mtu
	return problem == nil && failed == nil, errors.Join(err, problem, failed)
}

// lookAtPeers adds to the snapshot what this gateway decides of its peers: where and when they are dialled, which key they have, and
// what fits through the tunnel. It says when to look again.
func (g *Gateway) lookAtPeers(now time.Time, view agent.View) (again time.Time) {
	tunnel, read := g.readTunnel(len(view.Peers) > 0)
	results := g.prober.Results()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.views = view.Peers
	if read {
		g.tunnel = tunnel
	}
	told, off := tellers(view.Snapshot.Peers), offLimitsOf(view.Snapshot)
	kept := make(map[string]*peer, len(view.Peers))
	for i := range view.Snapshot.Peers {
		planned := &view.Snapshot.Peers[i]
		known := g.peers[planned.ClusterID]
		if known == nil {
			known = &peer{dialer: dialer{jitter: func(most time.Duration) time.Duration { return rand.N(most + 1) }}}
		}
		kept[planned.ClusterID] = known
		at := slices.IndexFunc(planned.Lanes, func(lane plan.PeerLane) bool { return lane.Number == g.o.Lane })
		if at < 0 {
			known.problem = fmt.Sprintf("the peer has no gateway for lane %d", g.o.Lane)
			continue
		}
		result := results[g.target(*planned)]
		if result.MTU > 0 {
			planned.MTU = result.MTU
		}
		elsewhere := func(key string) bool {
			return slices.ContainsFunc(told[key], func(id string) bool { return id != planned.ClusterID })
		}
		next := g.lookAtLane(now, known, &planned.Lanes[at], lookup{
			view.Peers[planned.ClusterID].Endpoints[g.o.Lane], view.Peers[planned.ClusterID].Previous[g.o.Lane], result, elsewhere, off,
		})
		if !next.IsZero() && (again.IsZero() || next.Before(again)) {
			again = next
		}
	}
	g.peers = kept
	g.resolver.keep(view.Peers, g.o.Lane)
	return again
}

// tellers says which peers tell a key to be theirs.
func tellers(peers []plan.Peer) map[string][]string {
	all := map[string][]string{}
	for _, one := range peers {
		for _, lane := range one.Lanes {
			for _, key := range lane.Keys {
				all[key] = append(all[key], one.ClusterID)
			}
		}
	}
	return all
}

// lookup is what one lane of a peer is looked at with.
type lookup struct {
	endpoints []agent.Endpoint
	previous  agent.PreviousKey
	result    probe.Result
	// elsewhere: another peer tells a key to be its own.
	elsewhere func(key string) bool
	off       offLimits
}

func (g *Gateway) lookAtLane(now time.Time, known *peer, lane *plan.PeerLane, l lookup) time.Time {
	handshake := func(key string) time.Time { return g.tunnel[key].LastHandshake }
	told := toldKeys{now: lane.Keys[0], elsewhere: l.elsewhere}
	if now.Sub(l.previous.Until) < forgotten {
		told.before = l.previous.PublicKey
	}
	lane.Keys = known.keys.step(now, told, handshake)
	s := seen{reply: l.result.Last, patience: l.result.Timeout}
	for _, key := range lane.Keys {
		if at := handshake(key); at.After(s.handshake) {
			s.handshake = at
		}
	}
	targets, wrong := g.targets(now, l, s.silent(now))
	known.problem = ""
	if len(targets) == 0 && wrong != nil {
		known.problem = wrong.Error()
	}
	next := known.dialer.step(now, targets, s)
	if at := g.tunnel[lane.Keys[0]].Endpoint; at.IsValid() && l.off.isRemote(at.Addr()) {
		// Whoever holds the key has led the tunnel into a tunnel. The peer is made anew, without that address.
		known.dialer.dial++
	}
	lane.Endpoint, lane.Dial = known.dialer.target, known.dialer.dial
	if soon := now.Add(changingKey); len(lane.Keys) > 1 && (next.IsZero() || soon.Before(next)) {
		return soon
	}
	return next
}

func (g *Gateway) targets(now time.Time, l lookup, trouble bool) (all []netip.AddrPort, wrong error) {
	names := 0
	for _, endpoint := range l.endpoints {
		if _, err := netip.ParseAddr(endpoint.Host); err != nil {
			if names++; names > mostNames {
				wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: only %d names are looked up", endpoint.Host, mostNames))
				continue
			}
		}
		addresses, err := g.resolver.addresses(now, endpoint.Host, trouble)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: %w", endpoint.Host, err))
		}
		for _, address := range addresses {
			if err := l.off.refuse(address, endpoint.Host); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: %w", endpoint.Host, err))
				continue
			}
			if target := netip.AddrPortFrom(address, endpoint.Port); !slices.Contains(all, target) {
				all = append(all, target)
			}
		}
	}
	return all, wrong
}

// readTunnel reads how the tunnel stands, by the keys of the peers, also one that was left by a process before; false if it cannot be read: then
// what was read last counts, and that the tunnel is broken is said by who brings it up.
func (g *Gateway) readTunnel(wanted bool) (map[string]host.TunnelPeer, bool) {
	if !wanted {
		return nil, true
	}
	peers, err := g.host.Tunnel()
	if err != nil {
		return nil, false
	}
	all := make(map[string]host.TunnelPeer, len(peers))
	for _, one := range peers {
		all[one.PublicKey] = one
	}
	return all, true
}

// target is where this lane's gateway of a peer echoes.
func (g *Gateway) target(p plan.Peer) probe.Target {
	return probe.Target{ClusterID: p.ClusterID, Lane: g.o.Lane, Address: ipam.ProbeAddress(p.RemoteExternal, g.o.Lane)}
}

// Done aims the probes at what was planned, and tells the news.
func (g *Gateway) Done(round agent.Round) {
	if round.Known {
		g.prober.Aim(g.aim(round))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !round.Known { // with what is wrong now, of what was known last
		round.Snapshot, round.State, round.Applied = g.round.Snapshot, g.round.State, g.round.Applied && round.Err == nil
	}
	g.round = round
	if round.Known {
		names, ids := make([]string, 0, len(round.Snapshot.Nodes)), make([]string, 0, len(round.Snapshot.Peers))
		for _, node := range round.Snapshot.Nodes {
			names = append(names, node.Name)
		}
		for _, peer := range round.Snapshot.Peers {
			ids = append(ids, peer.ClusterID)
		}
		g.sighting.Lock()
		g.sightings.Keep(names, ids)
		g.sighting.Unlock()
	}
	close(g.news)
	g.news = make(chan struct{})
}

func (g *Gateway) aim(round agent.Round) probe.Aim {
	s := round.Snapshot
	if len(s.Peers) == 0 || len(round.State.Links) == 0 {
		return probe.Aim{Pace: pace}
	}
	aim := probe.Aim{Pace: pace, Local: ipam.ProbeAddress(s.Local.External, g.o.Lane), Nodes: map[netip.Addr]string{}}
	for _, link := range round.State.Links {
		if link.Name == plan.TunnelLink {
			aim.MTU = link.MTU
		}
	}
	for _, peer := range s.Peers {
		if isPlanned(round.State, peer) {
			aim.Targets = append(aim.Targets, g.target(peer))
		}
	}
	nodes := make([]ipam.Node, 0, len(s.Nodes))
	for _, node := range s.Nodes {
		nodes = append(nodes, ipam.Node{Name: node.Name, PodCIDRs: node.PodCIDRs})
	}
	for name, address := range ipam.NodeAddresses(s.Local.External, s.Local.PodCIDRs[0], nodes) {
		aim.Nodes[address] = name
	}
	return aim
}

// isPlanned tells whether packets for a peer go into the tunnel: nothing is sent to networks that the plan refused.
func isPlanned(state plan.HostState, peer plan.Peer) bool {
	return slices.ContainsFunc(state.Routes, func(route plan.Route) bool {
		return route.Link == plan.TunnelLink && route.To == peer.RemoteExternal
	})
}

// uplink is the link that has an address.
func uplink(address netip.Addr) (name string, mtu int, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", 0, fmt.Errorf("list the links of the pod: %w", err)
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			continue // gone meanwhile
		}
		for _, one := range addresses {
			if network, err := netip.ParsePrefix(one.String()); err == nil && network.Addr() == address {
				return link.Name, link.MTU, nil
			}
		}
	}
	return "", 0, fmt.Errorf("no link of this pod has the address %s", address)
}
