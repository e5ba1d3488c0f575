// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/pools"
)

// reached returns the prefixes that lead to the peer here: every node has a route for each of them.
func (p *peer) reached() (all []netip.Prefix) {
	p.T.Helper()
	p.Read(p.tunnel)
	spec := &p.tunnel.Spec
	for _, text := range []string{networks.Seen(spec.RemotePodCIDR, spec.RemoteNATPodCIDR), networks.Seen(spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR)} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// writeDown writes networks of the peer down, as an administrator of this cluster would.
func (p *peer) writeDown(networks ...string) {
	p.T.Helper()
	p.Edit(p.fc, func() { p.fc.Spec.Network = &discoveryv1alpha1.PeerNetwork{PodCIDRs: networks} })
}

// accept agrees to other networks of the peer, as an administrator of this cluster would.
func (p *peer) accept(networks ...string) {
	p.T.Helper()
	p.Edit(p.fc, func() {
		if p.fc.Spec.Network == nil {
			p.fc.Spec.Network = &discoveryv1alpha1.PeerNetwork{}
		}
		p.fc.Spec.Network.AcceptedCIDRs = networks
	})
}

// event waits for an event of the ForeignCluster.
func (p *peer) event(reason string, parts ...string) {
	p.T.Helper()
	p.Until("an event "+reason, func() bool {
		var recorded eventsv1.EventList
		p.Must(p.List(p.T.Context(), &recorded))
		return slices.ContainsFunc(recorded.Items, func(one eventsv1.Event) bool {
			return one.Reason == reason && one.Regarding.Name == p.fc.Name && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(one.Note, part) })
		})
	})
}

// tunnelIs waits for the condition Ready of the tunnel.
func (p *peer) tunnelIs(reason string, parts ...string) {
	p.T.Helper()
	p.Until("the tunnel is "+reason, func() bool {
		p.Read(p.tunnel)
		c := meta.FindStatusCondition(p.tunnel.Status.Conditions, netv1alpha1.ConditionReady)
		return c != nil && c.Reason == reason && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(c.Message, part) })
	})
}

// TestAttackNC1: peers announce addresses of hosts that this cluster reaches as their own networks: the resolver, the subnet of the nodes, a large part of the
// private networks. None of it ever leads to them, unless an administrator here wrote it down.
func TestAttackNC1(t *testing.T) {
	b := newBench(t)
	b.node("n1", "10.0.12.7", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	apart := netip.MustParsePrefix("242.0.0.0/8")
	claims := map[string]string{"resolver": "10.0.0.0/30", "subnet": "10.0.12.0/24", "some": "172.20.0.0/14", "ten": "10.64.0.0/10", "twelve": "172.16.0.0/12"}
	var peers []*peer
	expect := func(p *peer, what string) {
		t.Helper()
		for _, network := range p.reached() {
			if !apart.Contains(network.Addr()) || network.Bits() < apart.Bits() {
				t.Errorf("%s announces %s and %s, and %s leads to it %s", p.id.ClusterName, p.copy.Spec.PodCIDR, p.copy.Spec.ExternalCIDR, network, what)
			}
		}
	}
	key := byte(0)
	for name, claimed := range claims {
		p := b.peer(name)
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		key++
		p.reports(claimed, "192.168.0.0/28", key)
		b.Until("the claim of "+name+" is decided", func() bool {
			b.Read(p.copy)
			return p.copy.Status.ObservedGeneration == p.copy.Generation
		})
		if !p.copy.Status.Processed {
			continue // refused, so there is no tunnel
		}
		p.answers("None", "None")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
		expect(p, "at first")
		peers = append(peers, p)
	}
	if len(peers) != 3 { // the other two claim too much
		t.Fatalf("%d of the peers have tunnels", len(peers))
	}
	// The same claims later, for the network of other addresses as well, and after a restart.
	for _, p := range peers {
		for _, claimed := range []string{"10.0.0.0/30", "10.64.0.0/10", "10.0.12.0/24"} {
			p.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.PodCIDR = netv1alpha1.CIDR(claimed) })
			b.Until("it is decided", func() bool { b.Read(p.copy); return p.copy.Status.ObservedGeneration == p.copy.Generation })
			expect(p, "after a change")
		}
	}
	stop()
	for _, p := range peers { // what a peer writes into our answer is no record
		b.EditStatus(p.copy, func() {
			p.copy.Status.Processed, p.copy.Status.PodCIDRNAT, p.copy.Status.ObservedGeneration = true, "10.0.12.0/24", p.copy.Generation
		})
	}
	b.run()
	for _, p := range peers {
		b.Until("our answer is back", func() bool { b.Read(p.copy); return p.copy.Status.PodCIDRNAT != "10.0.12.0/24" })
		expect(p, "after a restart")
	}
}

// TestWrittenDown: the network that an administrator wrote down is used as it is, that of the value as well, and nothing else of the same peer.
func TestWrittenDown(t *testing.T) {
	b := newBench(t)
	b.options.Pools.Unmapped = []netip.Prefix{netip.MustParsePrefix("10.60.0.0/14")}
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan, paris := b.peer("milan"), b.peer("paris")
	for i, p := range []*peer{milan, paris} {
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		p.reports([]string{"10.50.0.0/16", "10.61.0.0/16"}[i], "10.40.0.0/16", byte(i+1))
		p.answers("None", "None")
	}
	paris.decided(netv1alpha1.ReasonAgreed, "")
	if status := paris.copy.Status; status.PodCIDRNAT != "None" || status.ExternalCIDRNAT == "None" {
		t.Errorf("paris, whose pod network is in the value: %+v", status)
	}
	paris.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	for _, networks := range [][]string{{"10.50.0.0/15"}, {"10.50.1.0/24"}, {"999.1.1.1/16", "10.0.0.0/8"}, nil} { // another network is no word for this one
		milan.writeDown(networks...)
		for _, now := range milan.reached() {
			if !ipam.DefaultNetworks()[0].Contains(now.Addr()) {
				t.Errorf("with %v written down, milan is reached as %s", networks, now)
			}
		}
	}
	milan.writeDown("10.50.0.0/16", "10.40.0.0/16")
	milan.seen("None", "None")
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "10.50.0.0/16 is used as it is, by spec.network.podCIDRs of ForeignCluster milan", "10.40.0.0/16 is used as it is")
	milan.event(netv1alpha1.ReasonNetworkUnmapped, "10.50.0.0/16", "spec.network.podCIDRs of ForeignCluster milan")
	paris.tunnelIs(netv1alpha1.ReasonAgreed, "10.61.0.0/16 is used as it is, by value "+pools.UnmappedValue)
	b.Until("the tunnel follows the word", func() bool { b.Read(milan.tunnel); return milan.tunnel.Spec.RemoteNATPodCIDR == "None" })
	milan.writeDown("10.40.0.0/16")
	b.Until("the word is taken back", func() bool { return ipam.DefaultNetworks()[0].Contains(milan.reached()[0].Addr()) })
	if now := milan.reached()[1].String(); now != "10.40.0.0/16" {
		t.Errorf("other addresses are reached as %s", now)
	}
	milan.event(netv1alpha1.ReasonNetworkRemapped, "10.50.0.0/16")
	// What this cluster uses itself is not given away by a word either.
	milan.writeDown("10.40.0.0/16", "10.200.0.0/16")
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.PodCIDR = "10.200.0.0/16" })
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "10.200.0.0/16 is remapped although", "overlaps what this cluster or a node of it uses")
}

// TestAttackNC1Change: a peer changes its networks while they are in use, every time to those of another host. Nothing changes, an event and the conditions
// name the change, and it is used, remapped, once an administrator agrees to it.
func TestAttackNC1Change(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	bad := b.peer("bad")
	bad.outgoing(discoveryv1alpha1.StatusEstablished)
	bad.reports("10.201.0.0/16", "10.40.0.0/16", 1)
	bad.answers("None", "None")
	bad.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	first, generation := bad.reached(), bad.tunnel.Generation
	for _, network := range []string{"10.0.0.0/30", "10.7.7.0/24", "10.202.0.0/16"} {
		bad.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.PodCIDR = netv1alpha1.CIDR(network) })
		bad.decided(netv1alpha1.ReasonNetworkChanged, "podCIDR is now "+network+", and 10.201.0.0/16 is in use")
		bad.tunnelIs(netv1alpha1.ReasonNetworkChanged, network, "the previous agreement stays in use")
		if now := bad.reached(); !slices.Equal(now, first) || bad.tunnel.Generation != generation {
			t.Errorf("%s: the peer was reached as %s and is reached as %s", network, first, now)
		}
	}
	bad.event(netv1alpha1.ReasonNetworkChanged, "10.0.0.0/30")
	bad.accept("10.202.0.0/16")
	bad.decided(netv1alpha1.ReasonAgreed, "")
	b.Until("the tunnel follows", func() bool { bad.reached(); return bad.tunnel.Spec.RemotePodCIDR == "10.202.0.0/16" })
	if now := bad.reached()[0]; !ipam.DefaultNetworks()[0].Contains(now.Addr()) {
		t.Errorf("accepted, it is reached as %s", now)
	}
	// Too much of the pools, and a change back, are refused as before.
	bad.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.ExternalCIDR = "10.64.0.0/10" })
	bad.decided(netv1alpha1.ReasonNetworkTooLarge, "10.202.0.0/16, 10.64.0.0/10")
	bad.event(netv1alpha1.ReasonNetworkTooLarge, "10.64.0.0/10")
}

// reportOf makes or changes the report of a node, as its agent would.
func (b *bench) reportOf(node string, networks ...netv1alpha1.NodeNetwork) {
	b.T.Helper()
	report := &netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: node}}
	if !b.there(report) {
		report.Spec.Networks = networks
		b.Make(report)
		return
	}
	b.Edit(report, func() { report.Spec.Networks = networks })
}

// TestAttackNC1Nodes: a peer announces a network in which hosts are that only a node knows, by a link, a route or its resolver, and an administrator here wrote that
// network down, or a value that holds it. It is remapped, and the condition and an event give the reason; by its name in forcedCIDRs alone it leads to the peer.
// A link that appears later ends nothing.
func TestAttackNC1Nodes(t *testing.T) {
	b := newBench(t)
	b.options.Pools.Unmapped = []netip.Prefix{netip.MustParsePrefix("10.60.0.0/14")}
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.reportOf("n1",
		netv1alpha1.NodeNetwork{CIDR: "10.50.9.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "eth1"}, netv1alpha1.NodeNetwork{CIDR: "10.61.0.2/32", Kind: netv1alpha1.NodeNetworkResolver},
		netv1alpha1.NodeNetwork{CIDR: "10.200.1.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "cni0"}, netv1alpha1.NodeNetwork{CIDR: "242.0.0.0/15", Kind: netv1alpha1.NodeNetworkRoute, Link: "eth2"})
	gone := &netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "gone"}, Spec: netv1alpha1.NodeReportSpec{
		Networks: []netv1alpha1.NodeNetwork{{CIDR: "10.40.0.0/16", Kind: netv1alpha1.NodeNetworkRoute}},
	}}
	b.Make(gone)
	b.run()
	b.Until("the report of a node that does not exist is deleted", func() bool { return !b.there(gone) })
	milan, paris := b.peer("milan"), b.peer("paris")
	milan.writeDown("10.50.0.0/16", "10.40.0.0/16")
	for i, p := range []*peer{milan, paris} {
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		p.reports([]string{"10.50.0.0/16", "10.61.0.0/16"}[i], []string{"10.40.0.0/16", "10.41.0.0/16"}[i], byte(i+1))
		p.answers("None", "None")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	}
	apart, reached := netip.MustParsePrefix("242.0.0.0/8"), netip.MustParsePrefix("242.0.0.0/15")
	if now := milan.reached(); !apart.Overlaps(now[0]) || reached.Overlaps(now[0]) || now[1].String() != "10.40.0.0/16" {
		t.Errorf("milan is reached as %s", now)
	}
	if now := paris.reached(); !apart.Overlaps(now[0]) || reached.Overlaps(now[0]) {
		t.Errorf("paris, whose network is in the value, is reached as %s", now)
	}
	milan.free(false, "10.50.0.0/16 of the peer is remapped to", "10.50.9.0/24 (node n1 by its link eth1)", "list it in spec.network.forcedCIDRs of ForeignCluster milan")
	paris.free(false, "10.61.0.2/32 (node n1 as its resolver)")
	milan.event(netv1alpha1.ReasonNetworkOverlapsNode, "10.50.9.0/24")
	var config netv1alpha1.NetworkConfig
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(milan.ours), &config))
	if own := netip.MustParsePrefix(string(config.Spec.ExternalCIDR)); reached.Overlaps(own) {
		t.Errorf("our own external network is %s", own)
	}

	// By name only: a larger network is no name.
	b.Edit(milan.fc, func() { milan.fc.Spec.Network.ForcedCIDRs = []string{"10.48.0.0/14"} })
	b.Edit(milan.fc, func() { milan.fc.Spec.Network.ForcedCIDRs = []string{"10.50.0.0/16"} })
	milan.free(true, "")
	if now := milan.reached()[0].String(); now != "10.50.0.0/16" {
		t.Errorf("forced, milan is reached as %s", now)
	}
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "10.50.0.0/16 is used as it is, by spec.network.forcedCIDRs of ForeignCluster milan")

	// A link that a node gets later changes nothing, and is reported.
	generation := milan.tunnel.Generation
	b.reportOf("n1", netv1alpha1.NodeNetwork{CIDR: "10.40.7.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "docker0"})
	milan.free(false, "10.40.0.0/16 leads to the peer", "10.40.7.0/24 (node n1 by its link docker0) since")
	milan.event(netv1alpha1.ReasonNetworkOverlapsNode, "docker0")
	if now := milan.reached(); now[1].String() != "10.40.0.0/16" || milan.tunnel.Generation != generation {
		t.Errorf("milan is reached as %s", now)
	}
	// A resolver that is away may come back, so what is in use stays, until the administrator forces it.
	before := paris.reached()
	paris.free(true, "stays so until it is listed in spec.network.forcedCIDRs")
	if now := paris.reached(); now[0] != before[0] || !apart.Overlaps(now[0]) {
		t.Errorf("without the resolver, paris is reached as %s, before as %s", now, before)
	}
	b.Edit(paris.fc, func() { paris.fc.Spec.Network = &discoveryv1alpha1.PeerNetwork{ForcedCIDRs: []string{"10.61.0.0/16"}} })
	b.Until("the network is forced", func() bool { return paris.reached()[0].String() == "10.61.0.0/16" })
	b.expectNoWrites("an idle cluster with a conflict", time.Second)
}

// free waits for the condition NetworksFree.
func (p *peer) free(is bool, parts ...string) {
	p.T.Helper()
	var condition metav1.Condition
	defer func() {
		if p.T.Failed() {
			p.T.Logf("condition %+v", condition)
		}
	}()
	p.Until("the condition NetworksFree", func() bool {
		p.Read(p.tunnel)
		c := meta.FindStatusCondition(p.tunnel.Status.Conditions, netv1alpha1.ConditionNetworksFree)
		if c == nil {
			return false
		}
		condition = *c
		return (c.Status == metav1.ConditionTrue) == is && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(c.Message, part) })
	})
}
