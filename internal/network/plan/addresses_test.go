// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
)

// town is a cluster of two nodes: its plans, executed as the kernel would, and its pods by address.
type town struct {
	name, id string
	snapshot plan.Snapshot
	pools    ipam.Pools
	nodes    map[string]*machine
	gateway  *machine
	pods     map[netip.Addr]string
}

// case_ is how three clusters agreed on networks. Rome offloads to milan and to turin, which are no peers of each other.
type case_ struct {
	name string
	// pods are the pod networks of rome, milan and turin.
	pods []string
	// kept: the administrators of all clusters wrote the networks of the peers down.
	kept bool
	// before: the networks were agreed by a version in which both ends of a peering began at the same place.
	before bool
}

var cases = []case_{
	{name: "the same networks", pods: []string{"10.200.0.0/16", "10.200.0.0/16", "10.200.0.0/16"}},
	{name: "different networks", pods: []string{"10.200.0.0/16", "10.201.0.0/16", "10.202.0.0/16"}},
	{name: "different ones, kept", pods: []string{"10.200.0.0/16", "10.201.0.0/16", "10.202.0.0/16"}, kept: true},
	{name: "agreed before this release", pods: []string{"10.200.0.0/16", "10.200.0.0/16", "10.200.0.0/16"}, before: true},
}

// towns makes the clusters, with networks from the allocator.
func (c case_) towns(t *testing.T) map[string]*town {
	t.Helper()
	all := map[string]*town{}
	for i, name := range []string{"rome", "milan", "turin"} {
		one := &town{name: name, id: fmt.Sprintf("%d0000000-0000-4000-8000-000000000000", i+1), pods: map[netip.Addr]string{}, nodes: map[string]*machine{}}
		own := netip.MustParsePrefix(c.pods[i])
		one.pools = ipam.Pools{Networks: ipam.DefaultNetworks(), Used: []ipam.Use{{Name: "pods", Network: own}}}
		external, err := one.pools.External(16, nil)
		if err != nil {
			t.Fatal(err)
		}
		one.pools.Used = append(one.pools.Used, ipam.Use{Name: "external network", Network: external})
		one.snapshot = plan.Snapshot{
			Local: plan.Cluster{PodCIDRs: []netip.Prefix{own}, External: external},
			Self:  plan.Self{PodMTU: 1500, Uplink: "eth0", ListenPort: 5871, PublicKey: key(name)},
		}
		for n, node := range []string{"n0", "n1"} {
			network := netip.PrefixFrom(at(own, n, 0), 24)
			one.snapshot.Nodes = append(one.snapshot.Nodes, plan.Node{
				Name: node, Address: netip.AddrFrom4([4]byte{192, 168, byte(i), byte(10 + n)}), PodCIDRs: []netip.Prefix{network},
			})
		}
		one.snapshot.Gateways = []plan.Gateway{{Address: at(own, 0, 2), Node: "n0"}}
		// A pod of each cluster has the host part of a pod of each other one, as pods have whose nodes number them from the same address on.
		one.pods[at(own, 0, 5)], one.pods[at(own, 0, 6)], one.pods[at(own, 1, 7)] = "first", "neighbour", "distant"
		all[name] = one
	}
	for _, pair := range [][2]string{{"rome", "milan"}, {"rome", "turin"}} {
		c.peer(t, all[pair[0]], all[pair[1]])
	}
	for _, one := range all {
		one.plan(t)
	}
	return all
}

// at returns an address of a node's range.
func at(pods netip.Prefix, node, host int) netip.Addr {
	return write(netip.AddrFrom4([4]byte{0, 0, byte(node), byte(host)}), pods)
}

func (c case_) peer(t *testing.T, a, b *town) {
	t.Helper()
	word := ipam.NoWord
	if c.kept {
		word = ipam.Written
	}
	seen := func(by, of *town) (both [2]netip.Prefix) {
		if !c.before {
			by.pools.Here, by.pools.There = by.id, of.id
		}
		for i, kind := range []ipam.Kind{ipam.PodNetwork, ipam.ExternalNetwork} {
			have, _, err := by.pools.Acquire(of.name, kind, []netip.Prefix{of.snapshot.Local.PodCIDRs[0], of.snapshot.Local.External}[i], word)
			if err != nil {
				t.Fatal(err)
			}
			both[i] = have
		}
		return both
	}
	bByA, aByB := seen(a, b), seen(b, a)
	add := func(own, other *town, here, there [2]netip.Prefix) {
		shown := own.pools.IsVacant(there[0])
		own.snapshot.Peers = append(own.snapshot.Peers, plan.Peer{
			ClusterID: other.id, Name: other.name, RemotePods: here[0], RemoteExternal: here[1], Lanes: []plan.PeerLane{{Keys: []string{key(other.name)}}},
			Shown:    shown,
			Pods:     plan.Swap{From: own.snapshot.Local.PodCIDRs[0], To: there[0]},
			External: plan.Swap{From: own.snapshot.Local.External, To: there[1]},
		})
	}
	add(a, b, bByA, aByB)
	add(b, a, aByB, bByA)
}

// plan makes the machines of the cluster's hosts.
func (o *town) plan(t *testing.T) {
	t.Helper()
	s := o.snapshot
	s.Self.Address = s.Gateways[0].Address
	o.gateway = gateway(t, s)
	for _, node := range s.Nodes {
		s.Self = plan.Self{Node: node.Name, Address: node.Address, PodMTU: 1500}
		state, err := plan.ForNode(s)
		if err != nil {
			t.Fatal(err)
		}
		o.nodes[node.Name] = &machine{state: state, uplink: node.Address}
	}
}

func (o *town) nodeOf(address netip.Addr) *machine {
	for _, node := range o.snapshot.Nodes {
		if node.PodCIDRs[0].Contains(address) {
			return o.nodes[node.Name]
		}
	}
	return nil
}

// send follows a packet of a pod to where it ends: a pod of a cluster, or nowhere. The network plugin of each cluster delivers what is for one of its pods.
func send(towns map[string]*town, at *town, p packet) (packet, *town) {
	p.in = "veth"
	node := at.nodeOf(p.from)
	p, verdict := node.receive(p)
	if verdict != sent {
		return p, nil
	}
	if p.out == hoststate.VXLANLink {
		p, verdict = at.gateway.receive(again(p, hoststate.VXLANLink))
		if verdict != sent {
			return p, nil
		}
		arrived := false
		for _, other := range towns {
			if entered, ok := tunnel(p, at.gateway, other.gateway); ok {
				at, arrived = other, true
				if p, verdict = other.gateway.receive(entered); verdict != sent || p.out != hoststate.VXLANLink {
					return p, nil
				}
				break
			}
		}
		if !arrived {
			return p, nil
		}
		node = nil
	}
	last := at.nodeOf(p.to)
	if last == nil {
		return p, nil // it leaves by the default route of the node
	}
	if last != node {
		in := "eth0"
		if node == nil {
			in = hoststate.VXLANLink
		}
		if p, verdict = last.receive(again(p, in)); verdict != sent {
			return p, nil
		}
	}
	return p, at
}

// dial opens a connection from a pod, and returns where it leads: to a pod, from an address, and whether the answer comes from the address that was dialled.
func dial(t *testing.T, towns map[string]*town, from *town, client, address netip.Addr) (server string, seen netip.Addr) {
	t.Helper()
	for _, one := range towns {
		one.gateway.flows = nil
		for _, node := range one.nodes {
			node.flows = nil
		}
	}
	request, to := send(towns, from, packet{from: client, to: address, protocol: "tcp", port: 80})
	if to == nil || to.pods[request.to] == "" {
		return "", netip.Addr{}
	}
	answer, back := send(towns, to, packet{from: request.to, to: request.from, protocol: "tcp"})
	if back != from || answer.to != client || answer.from != address {
		return "", netip.Addr{}
	}
	return to.name + "/" + to.pods[request.to], request.from
}

// shown returns the address that a cluster's API shows for a pod of another one, or of its own.
func shown(by, of *town, pod string) netip.Addr {
	for address, name := range of.pods {
		if name != pod {
			continue
		}
		for _, peer := range by.snapshot.Peers {
			if peer.Name == of.name {
				address, _ = ipam.Swap(address, of.snapshot.Local.PodCIDRs[0], peer.RemotePods)
			}
		}
		return address
	}
	return netip.Addr{}
}

// question is a row of the table in ADR 44.
type question struct {
	text string
	from string // cluster of the client, whose pod is the first
	by   string // cluster in which the address was read
	of   string // cluster and pod
}

var questions = []question{
	{"its own, of rome's API", "milan", "rome", "milan/first"},
	{"of a pod on its node, of rome's API", "milan", "rome", "milan/neighbour"},
	{"of a pod on another node in milan, of rome's API", "milan", "rome", "milan/distant"},
	{"of a pod in rome, of rome's API", "milan", "rome", "rome/distant"},
	{"of a pod in rome, in milan (Services, DNS, an accepted connection)", "milan", "milan", "rome/distant"},
	{"of a pod in turin, of rome's API", "milan", "rome", "turin/distant"},
}

var questionsOfRome = []question{
	{"of a pod in milan, of rome's API (and its `liqo.io/pod-ip`)", "rome", "rome", "milan/distant"},
	{"that a pod in milan has itself (`status.podIP`)", "rome", "milan", "milan/distant"},
}

const record = "../../../docs/adr/0044-addresses-of-the-consumer.md"

// TestAddresses follows packets to each address that a pod may read, through the plans of three clusters, and compares the table in ADR 44 with where they end.
func TestAddresses(t *testing.T) {
	var table strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | ")) }
	header, line := []string{"Pod network"}, []string{"---"}
	for _, c := range cases {
		header, line = append(header, c.name), append(line, "---")
	}
	row(header...)
	row(line...)
	ask := func(who string, all []question) {
		row(append([]string{"**" + who + "** dials the address"}, slices.Repeat([]string{""}, len(cases))...)...)
		for _, q := range all {
			cells := []string{q.text}
			for _, c := range cases {
				cells = append(cells, c.answer(t, q))
			}
			row(cells...)
		}
	}
	ask("A pod in milan", questions)
	ask("A pod in rome", questionsOfRome)
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	const start, end = "<!-- where packets end, by TestAddresses -->\n\n", "\n<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), start)
	have, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table between %q and %q", record, start, end)
	}
	if *update {
		if err := os.WriteFile(record, []byte(before+start+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if difference := cmp.Diff(have, table.String()); difference != "" {
		t.Errorf("%s differs from where packets end (if this is intended: go test ./internal/network/plan -update):\n%s", record, difference)
	}
}

// answer is a cell of the table.
func (c case_) answer(t *testing.T, q question) string {
	t.Helper()
	towns := c.towns(t)
	cluster, pod, _ := strings.Cut(q.of, "/")
	from, of := towns[q.from], towns[cluster]
	client := shown(from, from, "first")
	address := shown(towns[q.by], of, pod)
	switch server, _ := dial(t, towns, from, client, address); server {
	case q.of:
		return "that pod"
	case "":
		return "none"
	default:
		return "**another pod**, in " + strings.Split(server, "/")[0]
	}
}

// TestAttackShown: a peer names any network as the one under which it shows our pods, and the controllers believe it. What our pods send to our own
// networks, hosts and other peers goes where it went without that peer; and what the peer's network leads to is always one of our pods, never a host.
func TestAttackShown(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	led := 0
	for range rounds {
		milan, _ := clusters(t, random)
		s := milan.snapshot
		s.Peers[0].Shown = true
		s.Nodes[2].Address = at(netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", random.IntN(9))), 9, 9)
		s.Self = plan.Self{Node: "node1", Address: s.Nodes[1].Address, PodMTU: 1500}
		state, err := plan.ForNode(s)
		if err != nil {
			continue // a node in the network of a peer, or the like
		}
		s.Peers[0].Shown = false
		without, err := plan.ForNode(s)
		if err != nil {
			t.Fatal(err)
		}
		peer, client := s.Peers[0], at(s.Local.PodCIDRs[0], 10, 5)
		for range 40 {
			to := anywhere(random, peer.Pods.To, s.Local.PodCIDRs[0], s.Local.External, peer.RemotePods, peer.RemoteExternal)
			if random.IntN(8) == 0 {
				to = s.Nodes[2].Address
			}
			p := packet{in: "veth", from: client, to: to, protocol: "tcp", port: 80}
			got, verdict := (&machine{state: state, uplink: s.Self.Address}).receive(p)
			want, verdictWithout := (&machine{state: without, uplink: s.Self.Address}).receive(p)
			if own, _ := ipam.Swap(to, peer.Pods.To, peer.Pods.From); got.to == own && got.to != to {
				led++
				if taken := s.Local.PodCIDRs[0].Contains(to) || s.Local.External.Contains(to) || peer.RemotePods.Contains(to) ||
					peer.RemoteExternal.Contains(to) || peer.Pods.To.Contains(s.Nodes[2].Address); taken {
					t.Fatalf("%s > %s is led to %s\n%s", client, to, got.to, state)
				}
				continue
			}
			if got.to != want.to || got.from != want.from || got.out != want.out || verdict != verdictWithout {
				t.Fatalf("%+v: %s as %+v, without the peer %s as %+v\n%s", p, verdict, got, verdictWithout, want, state)
			}
		}
		// Nothing that comes from elsewhere is led: neither from the overlay, nor from a host beside the node.
		for _, in := range []string{"eth0", hoststate.VXLANLink} {
			p := packet{
				in: in, from: anywhere(random, peer.RemotePods, peer.RemoteExternal, peer.Pods.To), to: anywhere(random, peer.Pods.To),
				protocol: "tcp", port: 80,
			}
			if s.Local.PodCIDRs[0].Contains(p.from) {
				continue
			}
			if got, _ := (&machine{state: state, uplink: s.Self.Address}).receive(p); got.to != p.to && got.to != s.Self.Address {
				t.Fatalf("%+v is led to %s\n%s", p, got.to, state)
			}
		}
	}
	if led == 0 {
		t.Error("nothing was led to a pod: the test covers too little")
	}
}

// TestShownWithoutGateways: pods reach each other at these addresses while no gateway runs, and while another lane takes over.
func TestShownWithoutGateways(t *testing.T) {
	milan := cases[0].towns(t)["milan"]
	chains := func(change func(*plan.Snapshot)) string {
		s := milan.snapshot
		s.Peers = slices.Clone(s.Peers)
		s.Self = plan.Self{Node: "n0", Address: s.Nodes[0].Address, PodMTU: 1500}
		change(&s)
		state, err := plan.ForNode(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, chain := range state.Chains {
			if chain.Name == "shown_in" {
				return hoststate.State{Chains: []hoststate.Chain{chain}}.String()
			}
		}
		return ""
	}
	all := chains(func(*plan.Snapshot) {})
	for what, change := range map[string]func(*plan.Snapshot){
		"without gateways":     func(s *plan.Snapshot) { s.Gateways = nil },
		"the peer has no lane": func(s *plan.Snapshot) { s.Peers[0].Lanes = nil },
		"another lane": func(s *plan.Snapshot) {
			s.Gateways = append(s.Gateways, plan.Gateway{Lane: 1, Address: at(s.Local.PodCIDRs[0], 1, 2), Node: "n1"})
			s.Peers[0].Lane = 1
		},
		"only offloaded pods may": func(s *plan.Snapshot) { s.Restricted = true },
	} {
		if got := chains(change); all == "" || got != all {
			t.Errorf("%s:\n%s, want\n%s", what, got, all)
		}
	}
	if got := chains(func(s *plan.Snapshot) { s.Peers[0].MappingsOnly = true }); got != "" {
		t.Errorf("the guest of an invitation shows pods:\n%s", got)
	}
}
