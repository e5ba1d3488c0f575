// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
	"liqo.io/liqo/internal/network/probe"
)

// changingKey is the interval between iterations while a peer changes its key: until we follow, its packets are lost.
const changingKey = 100 * time.Millisecond

// pace of the probes to peers.
var pace = probe.Pace{Up: 500 * time.Millisecond, Other: 200 * time.Millisecond}

// Host is the pod's own network.
type Host interface {
	agent.Host
	// Tunnel returns the state of the tunnel's peers.
	Tunnel() ([]host.TunnelPeer, error)
	// Implementation returns the implementation of WireGuard: kernel or userspace.
	Implementation() string
}

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
	// MTU bounds the MTU of the tunnel; 0: as much as the pod's link carries.
	MTU int
	// Pods: nodes of this cluster may have no pod networks of their own.
	Pods bool
	// Restricted: peers exchange packets only with pods that belong to the peering.
	Restricted bool
	Keys       *Keyring
	// Uplink returns the pod's link and its MTU, Lookup queries DNS. nil: the defaults.
	Uplink func() (name string, mtu int, err error)
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Hub has the streams to peers; nil for UDP only. StreamPort is the TCP port at which peers open streams; 0 for none.
	Hub        *carrier.Hub
	StreamPort int
	// Proxy returns the HTTP proxy through which streams are opened, nil for none. A nil function is none.
	Proxy                     func(hostPort string) (*url.URL, error)
	ProxyResolves, PublicOnly bool   // the proxy looks up the names of peers' gateways, in its own network; these have no private addresses
	ProbePort                 uint16 // replaces hoststate.ProbePort in tests
	Log                       logr.Logger
}

// Gateway is the role. Make it with New.
type Gateway struct {
	o        Options
	host     Host
	caches   *agent.Caches
	loop     *agent.Loop
	prober   *probe.Prober
	resolver *resolver
	streams  *streams

	// mu is held only briefly, and never during a call to the host: readers of the report must not wait for a busy kernel.
	mu        sync.Mutex
	peers     map[string]*peer
	tunnel    map[string]host.TunnelPeer
	iteration agent.Iteration
	views     map[string]agent.PeerView
	updated   chan struct{}

	// observations have a lock of their own, because waiting for it delays the answers to probes.
	observationsMu sync.Mutex
	observations   probe.Observations
}

// peer is what a gateway remembers of one peer.
type peer struct {
	tunnel *carriers.Peer
	keys   carriers.Keys
	// problem is why the peer cannot be dialled.
	problem string
}

// New returns a gateway. It sends no request and changes nothing before Run.
func New(cfg *rest.Config, host Host, o Options) (*Gateway, error) {
	if o.Uplink == nil {
		o.Uplink = func() (string, int, error) { return uplink(o.Address) }
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	g := &Gateway{o: o, host: host, peers: map[string]*peer{}, updated: make(chan struct{})}
	g.loop = agent.NewLoop(host, g, o.Log)
	g.resolver = &resolver{lookup: o.Lookup, changed: g.loop.Trigger}
	if o.Hub == nil {
		g.o.Hub = carrier.New(carrier.Options{Log: o.Log})
	}
	g.streams = newStreams(g.o.Hub, o.Log, g.loop.Trigger)
	g.streams.proxy, g.streams.resolve = o.Proxy, o.resolve()
	g.prober = probe.New(probe.Options{Port: o.ProbePort, Changed: g.loop.Trigger, Received: g.receive})
	var err error
	g.caches, err = agent.NewCaches(cfg, agent.Wants{
		Namespace: o.Namespace, Mappings: true, KeysSecret: o.KeysSecret, Pods: o.Pods, Restricted: o.Restricted,
	}, g.loop.Trigger)
	return g, err
}

// Run works until ctx ends. It leaves the network of the pod as it is, because that ends with the pod.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.caches.Run(ctx) })
	group.Go(func() error { return g.prober.Run(ctx) })
	group.Go(func() error { return g.loop.Run(ctx) })
	if g.o.StreamPort > 0 {
		group.Go(func() error { return g.accept(ctx) })
	}
	return group.Wait()
}

// Ready reports whether a plan was applied once.
func (g *Gateway) Ready() bool { return g.loop.Ready() }

// Alive is false if the loop is stuck.
func (g *Gateway) Alive() bool { return g.loop.Alive() }

func (g *Gateway) Plan(snapshot plan.Snapshot) (hoststate.State, error) {
	return plan.ForGateway(snapshot)
}

// Observe makes a snapshot from the listed objects and the measurements.
func (g *Gateway) Observe(ctx context.Context, now time.Time) agent.Observation {
	objects, known, err := g.caches.Objects(ctx)
	if !known {
		return agent.Observation{Err: err}
	}
	if isReplaced(objects.Gateways, g.o.Address, g.o.Lane) {
		objects.Tunnels = nil // another pod serves the peers
	}
	view, wrong := agent.NewView(objects)
	s := &view.Snapshot
	s.Local.VXLANPort = g.o.VXLANPort
	s.Self = plan.Self{Node: g.o.Node, Lane: g.o.Lane, Address: g.o.Address, ListenPort: g.o.ListenPort}
	observed := agent.Observation{Known: true, Err: errors.Join(err, wrong)}
	if len(s.Peers) > 0 {
		observed.Known, err = g.observeSelf(objects, &s.Self)
		observed.Err = errors.Join(observed.Err, err)
	}
	observed.RequeueAt = g.observePeers(now, view)
	observed.Snapshot = view.Snapshot
	return observed
}

// observeSelf fills in what the plan needs to know of this gateway. known is false if something is missing.
func (g *Gateway) observeSelf(objects agent.Objects, self *plan.Self) (known bool, err error) {
	var problem error
	if self.PublicKey, err = g.o.Keys.own(objects.Keys, g.o.Lane); self.PublicKey == "" {
		problem = fmt.Errorf("the Secret %s in namespace %s has no key for lane %d yet; the controller manager creates it", g.o.KeysSecret, g.o.Namespace, g.o.Lane)
	}
	name, mtu, failed := g.o.Uplink()
	if g.o.MTU > 0 {
		mtu = min(mtu, g.o.MTU+plan.Overhead)
	}
	self.Uplink, self.PodMTU = name, mtu
	return problem == nil && failed == nil, errors.Join(err, problem, failed)
}

// observePeers adds to the snapshot what this gateway decides for its peers: where and when it dials them, which key they have, and how large
// a packet fits through the tunnel. It returns when the next iteration must run at the latest.
func (g *Gateway) observePeers(now time.Time, view agent.View) (requeueAt time.Time) {
	tunnel, read := g.readTunnel(len(view.Peers) > 0)
	results := g.prober.Results()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.views = view.Peers
	if read {
		g.tunnel = tunnel
	}
	claimed, off := claimants(view.Snapshot.Peers), carriers.OffLimitsOf(view.Snapshot, g.o.PublicOnly)
	kept := make(map[string]*peer, len(view.Peers))
	for i := range view.Snapshot.Peers {
		planned := &view.Snapshot.Peers[i]
		known := g.peers[planned.ClusterID]
		if known == nil {
			known = &peer{tunnel: carriers.New(func(most time.Duration) time.Duration { return rand.N(most + 1) })}
		}
		kept[planned.ClusterID] = known
		at := slices.IndexFunc(planned.Lanes, func(lane plan.PeerLane) bool { return lane.Number == g.o.Lane })
		if at < 0 {
			known.problem = fmt.Sprintf("the peer announces no gateway for lane %d", g.o.Lane)
			continue
		}
		result := results[g.target(*planned)]
		if result.MTU > 0 {
			planned.MTU = result.MTU
		}
		elsewhere := func(key string) bool {
			return slices.ContainsFunc(claimed[key], func(id string) bool { return id != planned.ClusterID })
		}
		next := g.observeLane(now, known, &planned.Lanes[at], laneInputs{
			view.Peers[planned.ClusterID].Endpoints[g.o.Lane], view.Peers[planned.ClusterID].Previous[g.o.Lane], result, elsewhere, off,
		})
		if !next.IsZero() && (requeueAt.IsZero() || next.Before(requeueAt)) {
			requeueAt = next
		}
	}
	g.peers = kept
	g.shareKeys(view.Snapshot)
	g.resolver.keep(view.Peers, g.o.Lane)
	return requeueAt
}

// claimants returns which peers claim each key.
func claimants(peers []plan.Peer) map[string][]string {
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

type laneInputs struct {
	endpoints []agent.Endpoint
	previous  agent.PreviousKey
	result    probe.Result
	// elsewhere reports whether another peer claims a key.
	elsewhere func(key string) bool
	off       carriers.OffLimits
}

func (g *Gateway) observeLane(now time.Time, known *peer, lane *plan.PeerLane, l laneInputs) time.Time {
	handshake := func(key string) time.Time { return g.tunnel[key].LastHandshake }
	claimed := carriers.Claimed{Now: lane.Keys[0], Elsewhere: l.elsewhere}
	if now.Sub(l.previous.Until) < carriers.Forgotten {
		claimed.Before = l.previous.PublicKey
	}
	lane.Keys = known.keys.Step(now, claimed, handshake)
	s := carriers.Seen{Reply: l.result.Last, Timeout: l.result.Timeout}
	for _, key := range lane.Keys {
		if at := handshake(key); at.After(s.Handshake) {
			s.Handshake = at
		}
	}
	at := g.tunnel[lane.Keys[0]].Endpoint
	f := carriers.Facts{Seen: s, At: at, Inside: at.IsValid() && l.off.IsRemote(at.Addr())}
	var wrong error
	if f.UDP, wrong = g.targets(now, l, s.Silent(now)); wrong != nil {
		f.Wrong = wrong.Error()
	}
	tcp, streamed := g.streams.wayTo(lane.Keys[0], l.endpoints, l.off)
	if streamed {
		f.Stream, f.Failed = tcp.address, g.streams.problem(tcp.key)
		f.Passed, _ = g.o.Hub.Passed(tcp.key)
	}
	decided := known.tunnel.Step(now, &f)
	g.streams.act(tcp, &decided)
	known.problem, lane.Endpoint, lane.Dial = decided.Problem, decided.Target, decided.Dial
	if len(lane.Keys) > 1 {
		return carriers.Earlier(decided.Again, now.Add(changingKey))
	}
	return decided.Again
}

// readTunnel returns the WireGuard peers by public key, including those left by an earlier process. If the device cannot be read it
// returns false and the caller keeps the last result; Apply reports the error.
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

// target returns where a peer's gateway of this lane answers probes.
func (g *Gateway) target(p plan.Peer) probe.Target {
	return probe.Target{ClusterID: p.ClusterID, Lane: g.o.Lane, Address: ipam.ProbeAddress(p.RemoteExternal, g.o.Lane)}
}

// Done aims the probes at the planned targets, and wakes the readers of the report.
func (g *Gateway) Done(iteration agent.Iteration) {
	if iteration.Known {
		g.prober.Aim(g.aim(iteration))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !iteration.Known { // keep the last snapshot and state, with the present error
		iteration.Snapshot, iteration.State, iteration.Applied = g.iteration.Snapshot, g.iteration.State, g.iteration.Applied && iteration.Err == nil
	}
	g.iteration = iteration
	if iteration.Known {
		names, ids := make([]string, 0, len(iteration.Snapshot.Nodes)), make([]string, 0, len(iteration.Snapshot.Peers))
		for _, node := range iteration.Snapshot.Nodes {
			names = append(names, node.Name)
		}
		for _, peer := range iteration.Snapshot.Peers {
			ids = append(ids, peer.ClusterID)
		}
		g.observationsMu.Lock()
		g.observations.Keep(names, ids)
		g.observationsMu.Unlock()
	}
	close(g.updated)
	g.updated = make(chan struct{})
}

func (g *Gateway) aim(iteration agent.Iteration) probe.Aim {
	s := iteration.Snapshot
	if len(s.Peers) == 0 || len(iteration.State.Links) == 0 {
		return probe.Aim{Pace: pace}
	}
	aim := probe.Aim{Pace: pace, Local: ipam.ProbeAddress(s.Local.External, g.o.Lane), Nodes: map[netip.Addr]string{}}
	for _, link := range iteration.State.Links {
		if link.Name == hoststate.TunnelLink {
			aim.MTU = link.MTU
		}
	}
	for _, peer := range s.Peers {
		if isPlanned(iteration.State, peer) {
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

// isPlanned reports whether packets for a peer go into the tunnel. Networks that the plan refused get no packet.
func isPlanned(state hoststate.State, peer plan.Peer) bool {
	return slices.ContainsFunc(state.Routes, func(route hoststate.Route) bool {
		return route.Link == hoststate.TunnelLink && route.To == peer.RemoteExternal
	})
}

// uplink returns the link that has an address.
func uplink(address netip.Addr) (name string, mtu int, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", 0, fmt.Errorf("list the links of the pod: %w", err)
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			continue // deleted meanwhile
		}
		for _, one := range addresses {
			if network, err := netip.ParsePrefix(one.String()); err == nil && network.Addr() == address {
				return link.Name, link.MTU, nil
			}
		}
	}
	return "", 0, fmt.Errorf("no link of this pod has the address %s", address)
}
