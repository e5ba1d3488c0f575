// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"strings"
	"testing"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
)

// reachedByNodes: beta's administrator has written down the network that gamma announces, and one node of beta has a route to a host in it. The node reports
// that, the network does not lead to gamma, and the host answers a pod and the node all the time. Named in forcedCIDRs, the network does lead to gamma.
func reachedByNodes(t *testing.T) {
	startOutsider(t)
	peer := claim(t, gamma, beta)
	node := beta.Nodes[len(beta.Nodes)-1]
	reports := func() string {
		return beta.Kubectl(t, "-n", "liqo", "get", "nodereport", node.Name, "-o", "jsonpath={.spec.networks[*].cidr}")
	}
	if before := reports(); strings.Contains(before, itsNetwork) || before == "" {
		t.Fatalf("node %s reports %q, want networks of its own, and not %s", node.Name, before, itsNetwork)
	}
	way := strings.Fields(node.Net().Run(t, "ip", "-o", "route", "get", outsider.String()))
	if len(way) < 5 || way[1] != "via" {
		t.Fatalf("the way of node %s to the host is %q, want one by a router", node.Name, way)
	}
	node.Net().Run(t, "ip", "route", "add", itsNetwork, "via", way[2])
	t.Cleanup(func() { node.Net().Run(t, "ip", "route", "del", itsNetwork, "via", way[2]) })
	env.Eventually(t, env.Hang, "node "+node.Name+" reports its route", func() (string, bool) {
		now := reports()
		return now, strings.Contains(now, itsNetwork)
	})
	write := func(text string) {
		t.Helper()
		beta.Kubectl(t, "patch", "foreigncluster", gamma.Name, "--type", "merge", "-p", `{"spec":{"network":`+text+`}}`)
	}
	t.Cleanup(func() { write("null") })
	write(`{"podCIDRs":["` + itsNetwork + `"]}`)

	f := askOutsider(t)
	peer.withdraw(t)
	peer.announce(t, itsNetwork)
	peer.decided(t, network.ReasonAgreed)
	peer.remapped(t, itsNetwork)
	env.Eventually(t, env.Hang, "the tunnel endpoint names the node", func() (string, bool) {
		tunnel := beta.Kubectl(t, "get", "tunnelendpoints", "-A", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="NetworksFree")].message}`)
		return tunnel, strings.Contains(tunnel, itsNetwork) && strings.Contains(tunnel, "node "+node.Name)
	})
	f.stop()
	for which, n := range f.state() {
		clusters.Measure("written-down address that a node reaches: "+which.kind+" from "+which.from.Name, "%d requests, %d lost", n.Sent, n.Lost)
		if n.Lost > 0 || n.Sent == 0 {
			t.Errorf("%d of %d requests from %s to the host were lost (%s); want none", n.Lost, n.Sent, which.from.Name, n.Why)
		}
	}
	if events := beta.Kubectl(
		t, "get", "events", "-A", "--field-selector", "reason="+network.ReasonNetworkOverlapsNode+",involvedObject.name="+gamma.Name, "-o",
		"name",
	); events == "" {
		t.Error("no event of beta's ForeignCluster of gamma names the route")
	}

	// By its name it leads to the peer: so it was the report that kept it.
	write(`{"forcedCIDRs":["` + itsNetwork + `"]}`)
	env.Eventually(t, env.Hang, "the forced network leads to the peer", func() (string, bool) {
		view, err := networks.See(beta, gamma)
		if err != nil {
			return err.Error(), false
		}
		now := node.Net().Run(t, "ip", "-o", "route", "get", outsider.String())
		return fmt.Sprint(view.Spec.RemoteNATPodCIDR, "; ", now), view.Spec.RemoteNATPodCIDR == network.NotRemapped && strings.Contains(now, "liqo.vxlan")
	})
}
