// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestAttackShown: a peer states the network under which it shows our pods. That leads to them here only if nothing else does: no network of ours, of another peer, or that
// a node reaches, and none that this cluster has not set apart.
func TestAttackShown(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	reached := netv1alpha1.NodeNetwork{CIDR: "242.60.0.0/16", Kind: netv1alpha1.NodeNetworkRoute, Link: "eth2"}
	b.reportOf("n1", reached)
	b.run()
	expect := func(p *peer, what, want string) {
		t.Helper()
		b.Until(what, func() bool { return b.there(p.tunnel) && p.tunnel.Labels[labels.TunnelShown] == want })
	}
	var milan *peer
	for i, row := range []struct{ name, shows, want string }{
		{"milan", "242.200.0.0/16", "true"},
		{"genoa", "242.200.0.0/16", "true"}, // both mean our pods
		{"paris", "10.50.0.0/16", ""},
		{"turin", "242.177.0.0/16", ""}, // where milan is reached
		{"bari", "242.60.0.0/16", ""},   // a node reaches it
		{"pisa", "242.0.0.0/16", ""},    // our external network
		{"lyon", "10.96.0.0/16", ""},    // our Services
		{"bern", "250.1.0.0/16", ""},    // not set apart here
		{"rimini", "None", ""},
	} {
		p := b.peer(row.name)
		p.outgoing("Established")
		p.reports("10.200.0.0/16", "242.0.0.0/16", byte(i+1))
		p.answers(row.shows, "242.250.0.0/16")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
		expect(p, row.name+" shows "+row.shows, row.want)
		if row.name == "milan" {
			milan = p
			if milan.tunnel.Spec.RemoteNATPodCIDR != "242.177.0.0/16" {
				t.Fatalf("milan is reached as %s, so turin's row tests nothing", milan.tunnel.Spec.RemoteNATPodCIDR)
			}
		}
	}
	b.reportOf("n1", reached, netv1alpha1.NodeNetwork{CIDR: "242.200.7.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "docker0"})
	expect(milan, "a node begins to reach a part of it", "")
	b.reportOf("n1", reached)
	expect(milan, "it reaches that no more", "true")
	b.expectNoWrites("idle", time.Second)
}
