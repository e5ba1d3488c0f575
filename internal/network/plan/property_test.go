// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
)

const rounds = 400

// side is one of two clusters that are peers.
type side struct {
	snapshot plan.Snapshot
	gateway  *machine
}

// clusters makes two clusters. Their networks come from so few that they overlap in every way, also crosswise: the pod network of one may be
// the prefix under which the other reaches the external network of the first.
func clusters(t *testing.T, random *rand.Rand) (rome, milan side) {
	t.Helper()
	networks := func() []netip.Prefix {
		var all []netip.Prefix
		for _, i := range random.Perm(6) {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
		}
		return all
	}
	// Own pods and external network, then the peer's as seen here.
	r, m := networks(), networks()
	rome = cluster(t, "rome", "milan", r, m)
	milan = cluster(t, "milan", "rome", m, r)
	return rome, milan
}

func cluster(t *testing.T, name, peer string, own, theirs []netip.Prefix) side {
	t.Helper()
	s := plan.Snapshot{
		Local: plan.Cluster{PodCIDRs: own[:1], External: own[1]},
		Peers: []plan.Peer{{
			ClusterID: peer, Name: peer,
			Pods: plan.Swap{From: own[0], To: theirs[2]}, External: plan.Swap{From: own[1], To: theirs[3]},
			RemotePods: own[2], RemoteExternal: own[3],
			Lanes: []plan.PeerLane{{Keys: []string{key(peer)}}},
		}},
		Self: plan.Self{PodMTU: 1500, Uplink: "eth0", ListenPort: 5871, PublicKey: key(name)},
	}
	for i := range 3 {
		network, _ := ipam.Swap(netip.AddrFrom4([4]byte{0, 0, byte(10 * i)}), netip.MustParsePrefix("0.0.0.0/16"), own[0])
		s.Nodes = append(s.Nodes, plan.Node{
			Name: fmt.Sprint("node", i), Address: netip.AddrFrom4([4]byte{192, 168, 0, byte(10 + i)}), PodCIDRs: []netip.Prefix{netip.PrefixFrom(network, 24)},
		})
	}
	s.Self.Address = s.Nodes[0].PodCIDRs[0].Addr().Next().Next()
	s.Gateways = []plan.Gateway{{Address: s.Self.Address, Node: "node0"}}
	return side{snapshot: s, gateway: gateway(t, s)}
}

func gateway(t *testing.T, s plan.Snapshot) *machine {
	t.Helper()
	state, err := plan.ForGateway(s)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{state: state, uplink: s.Self.Address}
}

func key(name string) string { return (name + strings.Repeat("A", 43))[:43] + "=" }

// host returns a random address of a pod or, in the external network, of a node; and the address under which the peer reaches it.
func (s side) host(random *rand.Rand) (address, seen netip.Addr) {
	node := s.snapshot.Nodes[random.IntN(len(s.snapshot.Nodes))]
	peer := s.snapshot.Peers[0]
	if random.IntN(4) == 0 {
		address, _ = ipam.Swap(node.PodCIDRs[0].Addr(), s.snapshot.Local.PodCIDRs[0], s.snapshot.Local.External)
		seen, _ = ipam.Swap(address, peer.External.From, peer.External.To)
		return address, seen
	}
	four := node.PodCIDRs[0].Addr().As4()
	four[3] = byte(3 + random.IntN(253)) // 2 is the gateway
	address = netip.AddrFrom4(four)
	seen, _ = ipam.Swap(address, peer.Pods.From, peer.Pods.To)
	return address, seen
}

// TestWayAndBack: whatever the networks, a packet to the remapped address of a host arrives at that host, from the remapped address of the
// sender. The answer returns to the sender, and an ICMP error carries the addresses that the sender used.
func TestWayAndBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		rome, milan := clusters(t, random)
		client, clientSeen := rome.host(random)
		server, serverSeen := milan.host(random)

		request := cross(t, packet{in: hoststate.VXLANLink, from: client, to: serverSeen, protocol: "tcp", mss: 1460}, rome, milan)
		if request.from != clientSeen || request.to != server || request.mss != 1380 {
			t.Fatalf(
				"%s > %s (mss 1460) arrived as %s > %s (mss %d), want %s > %s (mss 1380)\n%+v", client, serverSeen, request.from, request.to,
				request.mss, clientSeen, server, rome.snapshot,
			)
		}
		if route, _ := milan.gateway.best(hoststate.Table, server); route.Link != hoststate.VXLANLink || !route.Via.IsValid() {
			t.Fatalf("no node for %s: %+v", server, route)
		}
		answer := cross(t, packet{in: hoststate.VXLANLink, from: server, to: request.from, protocol: "tcp", mss: 1000}, milan, rome)
		if answer.from != serverSeen || answer.to != client || answer.mss != 1000 {
			t.Fatalf("the answer of %s is %s > %s, want %s > %s", server, answer.from, answer.to, serverSeen, client)
		}
		// The error may come from another host than the server, for example from its node.
		router, routerSeen := milan.host(random)
		failure := cross(t, packet{
			in: hoststate.VXLANLink, from: router, to: request.from, protocol: "icmp", innerFrom: request.from, innerTo: request.to,
		}, milan, rome)
		if failure.from != routerSeen || failure.to != client || failure.innerFrom != client || failure.innerTo != serverSeen {
			t.Fatalf("the error of %s is %s > %s about %s > %s, want %s > %s about %s > %s", router,
				failure.from, failure.to, failure.innerFrom, failure.innerTo, routerSeen, client, client, serverSeen)
		}
	}
}

// cross sends a packet from the overlay of one cluster to that of the other.
func cross(t *testing.T, p packet, from, to side) packet {
	t.Helper()
	left, verdict := from.gateway.receive(p)
	if verdict != sent {
		t.Fatalf("%+v was %s by the first gateway:\n%s", p, verdict, from.gateway.state)
	}
	entered, ok := tunnel(left, from.gateway, to.gateway)
	if !ok {
		t.Fatalf("the tunnel refused %+v\n%s\n%s", left, from.gateway.state, to.gateway.state)
	}
	arrived, verdict := to.gateway.receive(entered)
	if verdict != sent || arrived.out != hoststate.VXLANLink {
		t.Fatalf("%+v was %s (%s) by the second gateway:\n%s", entered, verdict, arrived.out, to.gateway.state)
	}
	return arrived
}

// TestProbes: a gateway's probe comes to the gateway of the same lane, and its echo back.
func TestProbes(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range rounds {
		rome, milan := clusters(t, random)
		own := ipam.ProbeAddress(rome.snapshot.Local.External, 0)
		left, verdict := rome.gateway.send(packet{
			from: own, to: ipam.ProbeAddress(rome.snapshot.Peers[0].RemoteExternal, 0), protocol: "udp", port: hoststate.ProbePort,
		})
		entered, ok := tunnel(left, rome.gateway, milan.gateway)
		if verdict != sent || !ok {
			t.Fatalf("%s %v %+v", verdict, ok, left)
		}
		probed, verdict := milan.gateway.receive(entered)
		if verdict != local {
			t.Fatalf("%+v was %s", entered, verdict)
		}
		left, verdict = milan.gateway.send(packet{from: probed.to, to: probed.from, protocol: "udp", port: hoststate.ProbePort})
		entered, ok = tunnel(left, milan.gateway, rome.gateway)
		if verdict != sent || !ok {
			t.Fatalf("%s %v %+v", verdict, ok, left)
		}
		if echo, verdict := rome.gateway.receive(entered); verdict != local || echo.to != own {
			t.Fatalf("%+v was %s at %s, want %s at %s", entered, verdict, echo.to, local, own)
		}
	}
}

// TestHostilePeer: the holder of milan's key can send anything. Its packets reach our hosts under the addresses that milan has for them, and
// our echo, and nothing else, even after an administrator has deleted our routes.
func TestHostilePeer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	came := map[string]int{}
	for range rounds {
		rome, _ := clusters(t, random)
		peer := rome.snapshot.Peers[0]
		flushed := &machine{state: rome.gateway.state, uplink: rome.gateway.uplink}
		flushed.state.Routes = nil
		for range 50 {
			p := packet{
				in: hoststate.TunnelLink, from: anywhere(random, peer.RemotePods, peer.RemoteExternal),
				to:       anywhere(random, peer.Pods.To, peer.External.To, peer.Pods.From, peer.External.From),
				protocol: []string{"tcp", "udp", "icmp"}[random.IntN(3)], port: []uint16{22, hoststate.ProbePort, hoststate.DefaultVXLANPort, 5873}[random.IntN(4)],
			}
			if !allowed(rome.gateway, key("milan"), p.from) {
				if peer.RemotePods.Contains(p.from) || peer.RemoteExternal.Contains(p.from) {
					t.Fatalf("WireGuard refuses %s", p.from)
				}
				continue // WireGuard drops it
			}
			arrived, verdict := rome.gateway.receive(p)
			came[verdict]++
			known := peer.Pods.To.Contains(p.to) || peer.External.To.Contains(p.to)
			echo := p.protocol == "udp" && p.port == hoststate.ProbePort && arrived.to == ipam.ProbeAddress(rome.snapshot.Local.External, 0)
			switch {
			case verdict == dropped, verdict == lost:
			case verdict == local && known && (p.protocol == "icmp" || echo):
			case verdict == sent && known && arrived.out == hoststate.VXLANLink && (peer.Pods.From.Contains(arrived.to) || peer.External.From.Contains(arrived.to)):
			default:
				t.Fatalf("%+v was %s as %+v:\n%s", p, verdict, arrived, rome.gateway.state)
			}
			if arrived, verdict := flushed.receive(p); verdict == sent {
				t.Fatalf("without routes, %+v was %s as %+v", p, verdict, arrived)
			}
		}
	}
	for _, verdict := range []string{dropped, lost, local, sent} {
		if came[verdict] == 0 {
			t.Errorf("no packet was %s: the test covers too little (%v)", verdict, came)
		}
	}
}

// TestAttackM4: with restricted traffic, a peer reaches the pods that belong to the peering, and no others; those others send nothing to the peer, and no
// host of ours accepts a connection.
func TestAttackM4(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	came := map[bool]int{}
	for range rounds {
		rome, milan := clusters(t, random)
		peer := &rome.snapshot.Peers[0]
		rome.snapshot.Restricted = true
		for range random.IntN(40) {
			if pod, _ := rome.host(random); peer.Pods.From.Contains(pod) {
				peer.Reachable = append(peer.Reachable, pod)
			}
		}
		rome.gateway = gateway(t, rome.snapshot)
		_, from := milan.host(random)
		for range 40 {
			pod, seen := rome.host(random)
			if len(peer.Reachable) > 0 && random.IntN(2) == 0 {
				pod = peer.Reachable[random.IntN(len(peer.Reachable))]
				seen, _ = ipam.Swap(pod, peer.Pods.From, peer.Pods.To)
			}
			if !peer.Pods.From.Contains(pod) {
				continue // a node: the node drops new connections
			}
			belongs := slices.Contains(peer.Reachable, pod)
			came[belongs]++
			in := packet{in: hoststate.TunnelLink, from: from, to: seen, protocol: "tcp", port: 80}
			if arrived, verdict := rome.gateway.receive(in); (verdict == sent && arrived.to == pod) != belongs {
				t.Fatalf("to a pod that belongs to the peering (%t): %+v was %s as %+v\n%s", belongs, in, verdict, arrived, rome.gateway.state)
			}
			out := packet{in: hoststate.VXLANLink, from: pod, to: from, protocol: "tcp", port: 80}
			if _, verdict := rome.gateway.receive(out); (verdict == sent) != belongs {
				t.Fatalf("from a pod that belongs to the peering (%t): %+v was %s\n%s", belongs, out, verdict, rome.gateway.state)
			}
		}
	}
	if came[true] == 0 || came[false] == 0 {
		t.Errorf("the test covers too little: %v", came)
	}
}

// anywhere returns an address that is often in one of the networks, and there often one in use.
func anywhere(random *rand.Rand, networks ...netip.Prefix) netip.Addr {
	address := netip.AddrFrom4([4]byte{byte(random.IntN(256)), byte(random.IntN(256)), byte(10 * random.IntN(4)), byte(random.IntN(4))})
	if random.IntN(5) == 0 {
		return address
	}
	return write(address, networks[random.IntN(len(networks))])
}

// TestNoTransit: only packets from our own addresses leave by the tunnel, whatever link they came by.
func TestNoTransit(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range rounds {
		rome, _ := clusters(t, random)
		peer := rome.snapshot.Peers[0]
		p := packet{
			in: []string{"eth0", hoststate.VXLANLink, hoststate.TunnelLink}[random.IntN(3)], protocol: "tcp",
			from: anywhere(random, peer.Pods.To, peer.External.To, peer.Pods.From), to: anywhere(random, peer.RemotePods, peer.RemoteExternal),
		}
		left, verdict := rome.gateway.receive(p)
		ours := peer.Pods.From.Contains(p.from) || peer.External.From.Contains(p.from)
		if verdict == sent && left.out == hoststate.TunnelLink && !ours {
			t.Fatalf("%+v left as %+v:\n%s", p, left, rome.gateway.state)
		}
		if verdict == sent && p.in != "eth0" && left.out == "eth0" {
			t.Fatalf("%+v left by the uplink:\n%s", p, rome.gateway.state)
		}
	}
}

// TestUplink: a gateway forwards no packet that arrives over its uplink. It accepts none from a peer's hosts, which may arrive there from
// another lane, and none for its echo, at which nodes report what they observe.
func TestUplink(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	came := map[string]int{}
	for range rounds {
		rome, _ := clusters(t, random)
		peer, probe := rome.snapshot.Peers[0], ipam.ProbeAddress(rome.snapshot.Local.External, 0)
		p := packet{
			in: "eth0", protocol: "udp", port: []uint16{5871, 5873, hoststate.ProbePort}[random.IntN(3)],
			from: anywhere(random, peer.RemotePods, peer.RemoteExternal, peer.Pods.From, peer.External.From),
			to:   []netip.Addr{rome.gateway.uplink, probe, anywhere(random, peer.RemotePods, peer.Pods.From, peer.External.From)}[random.IntN(3)],
		}
		_, verdict := rome.gateway.receive(p)
		came[verdict]++
		theirs := peer.RemotePods.Contains(p.from) || peer.RemoteExternal.Contains(p.from)
		if verdict == sent || verdict == local && (theirs || p.to == probe) {
			t.Fatalf("%+v was %s:\n%s", p, verdict, rome.gateway.state)
		}
	}
	if came[local] == 0 || came[dropped] == 0 {
		t.Errorf("the test covers too little: %v", came)
	}
}

// TestMappings follows a connection to the target of each mapping in testdata/mappings.txtar, and its answers.
func TestMappings(t *testing.T) {
	snapshot := readSnapshot(t, parse(t, "testdata/mappings.txtar").Files[0].Data)
	state, err := host(t, snapshot, "gateway", "0")
	if err != nil {
		t.Fatal(err)
	}
	rome := &machine{state: state, uplink: snapshot.Gateways[0].Address}
	const milan, turin, probe = "10.30.2.7", "10.31.0.7", "10.70.0.1"
	for _, test := range []struct{ what, from, to, verdict, out, source, target string }{
		{"a Service", milan, "10.72.0.17", sent, "eth0", "10.10.0.9", "10.96.0.10"},
		{"a Service, from another peer", turin, "10.72.0.17", sent, "eth0", "10.10.0.9", "10.96.0.10"},
		{"a host, for milan only", milan, "10.72.0.18", sent, "eth0", "10.10.0.9", "192.168.9.9"},
		{"a host, not for turin", turin, "10.72.0.18", lost, "", "", ""},
		{"a pod of turin's", milan, "10.72.0.19", sent, hoststate.TunnelLink, "10.72.0.1", "10.31.0.5"},
		{"nothing", milan, "10.72.0.20", lost, "", "", ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			rome.flows = nil
			from, to := netip.MustParseAddr(test.from), netip.MustParseAddr(test.to)
			request, verdict := rome.receive(packet{in: hoststate.TunnelLink, from: from, to: to, protocol: "tcp"})
			if verdict != test.verdict || verdict == sent && (request.out != test.out || request.from.String() != test.source || request.to.String() != test.target) {
				t.Fatalf("%s > %s: %s by %q as %s > %s", from, to, verdict, request.out, request.from, request.to)
			}
			if verdict != sent {
				return
			}
			answer, verdict := rome.receive(packet{in: request.out, from: request.to, to: request.from, protocol: "tcp"})
			if verdict != sent || answer.out != hoststate.TunnelLink || answer.from != to || answer.to != from {
				t.Fatalf("the answer %s > %s: %s by %q as %s > %s", request.to, request.from, verdict, answer.out, answer.from, answer.to)
			}
		})
	}
	for _, p := range []packet{
		{in: hoststate.TunnelLink, from: netip.MustParseAddr(milan), to: netip.MustParseAddr("10.40.1.5")},
		{in: hoststate.VXLANLink, from: netip.MustParseAddr("10.10.1.5"), to: netip.MustParseAddr(milan)},
		{in: "eth0", from: snapshot.Nodes[0].Address, to: rome.uplink, protocol: "udp", port: hoststate.DefaultVXLANPort},
	} {
		if arrived, _ := rome.receive(p); !arrived.untracked {
			t.Errorf("%+v is for no mapping, but tracked", p)
		}
	}
}

// TestInvitation: the guest of an invitation reaches the mapping for it, and nothing else: no pod, no node, no other mapping.
func TestInvitation(t *testing.T) {
	snapshot := readSnapshot(t, parse(t, "testdata/mappings.txtar").Files[0].Data)
	for i := range snapshot.Peers {
		if snapshot.Peers[i].Name == "turin" {
			snapshot.Peers[i].MappingsOnly = true
			snapshot.Mappings = append(snapshot.Mappings, plan.Mapping{
				External: netip.MustParseAddr("10.70.0.99"), Target: snapshot.Mappings[0].Target, Ports: snapshot.Mappings[0].Ports,
				ClusterIDs: []string{snapshot.Peers[i].ClusterID},
			})
		}
	}
	state, err := host(t, snapshot, "gateway", "0")
	if err != nil {
		t.Fatal(err)
	}
	const turin = "10.31.0.7"
	rome := &machine{state: state, uplink: snapshot.Gateways[0].Address}
	for to, want := range map[string]string{
		"10.72.0.99": sent,    // the mapping for it
		"10.72.0.17": dropped, // that for all peers
		"10.72.0.18": dropped, // that for milan only
		"10.72.0.1":  dropped, // only UDP, of probes
		"10.72.0.0":  dropped,
		"10.72.1.0":  dropped,
		"10.40.1.5":  dropped,
		"10.10.1.5":  dropped,
	} {
		rome.flows = nil
		if _, verdict := rome.receive(packet{
			in: hoststate.TunnelLink, from: netip.MustParseAddr(turin), to: netip.MustParseAddr(to), protocol: "tcp",
		}); verdict != want {
			t.Errorf("%s: %s, want %s", to, verdict, want)
		}
	}
	if _, verdict := rome.receive(packet{in: hoststate.VXLANLink, from: netip.MustParseAddr("10.10.1.5"), to: netip.MustParseAddr(turin)}); verdict != dropped {
		t.Errorf("a pod sends to the guest: %s", verdict)
	}
	if _, verdict := rome.receive(packet{
		in: hoststate.TunnelLink, from: netip.MustParseAddr("10.30.2.7"), to: netip.MustParseAddr("10.40.1.5"),
	}); verdict != sent {
		t.Errorf("another peer does not reach a pod: %s", verdict)
	}
}

// TestAttackM3: a peer reaches the ports of a mapping, and nothing else of its host: neither kubelet, nor SSH, nor the same port of another protocol.
func TestAttackM3(t *testing.T) {
	snapshot := readSnapshot(t, parse(t, "testdata/mappings.txtar").Files[0].Data)
	state, err := host(t, snapshot, "gateway", "0")
	if err != nil {
		t.Fatal(err)
	}
	rome := &machine{state: state, uplink: snapshot.Gateways[0].Address}
	for _, test := range []struct {
		from, protocol string
		port           uint16
		verdict        string
	}{
		{"10.30.2.7", "tcp", 443, sent},
		{"10.30.2.7", "udp", 53, sent},
		{"10.30.2.7", "tcp", 53, lost},
		{"10.30.2.7", "udp", 443, lost},
		{"10.30.2.7", "tcp", 10250, lost},
		{"10.30.2.7", "tcp", 22, lost},
		{"10.30.2.7", "icmp", 0, lost},
		{"10.31.0.7", "tcp", 443, lost}, // another peer
	} {
		rome.flows = nil
		got, verdict := rome.receive(packet{
			in: hoststate.TunnelLink, from: netip.MustParseAddr(test.from), to: netip.MustParseAddr("10.72.0.21"), protocol: test.protocol, port: test.port,
		})
		if verdict != test.verdict || verdict == sent && got.to != netip.MustParseAddr("192.168.9.10") {
			t.Errorf("%s, %s port %d: %s, to %s", test.from, test.protocol, test.port, verdict, got.to)
		}
	}
}

// TestStateless: without mappings a gateway has nothing that makes the kernel track connections.
func TestStateless(t *testing.T) {
	rome, _ := clusters(t, rand.New(rand.NewPCG(5, 5)))
	for _, chain := range rome.gateway.state.Chains {
		if chain.NAT || slices.ContainsFunc(chain.Rules, func(rule hoststate.PacketRule) bool { return rule.New || rule.Mapped || rule.Verb == hoststate.NoTrack }) {
			t.Errorf("chain %s makes the kernel track connections:\n%s", chain.Name, rome.gateway.state)
		}
	}
}
