// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/traffic"
)

// hostilePeer replaces gamma's gateway by a program that has gamma's key and sends arbitrary packets. Only packets for alpha's pods and nodes
// under the agreed addresses, and from the prefix that gamma was assigned, may arrive on a node of alpha or beta.
func hostilePeer(t *testing.T) {
	view := see(t, gamma, alpha)
	server := traffic.AllServers(t, alpha)[0]
	assigned := valid(t)(view.Source(traffic.AllServers(t, gamma)[0].Address)) // address of gamma's pod in alpha
	pod := valid(t)(view.Pod(server.Address))
	transit := valid(t)(see(t, alpha, beta).Pod(traffic.AllServers(t, beta)[0].Address))
	betaNode := valid(t)(see(t, alpha, beta).Node(beta.Nodes[0]))
	lane := gateway(t, alpha, 0)
	dns, err := netip.ParseAddr(alpha.Kubectl(t, "-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	node := valid(t)(view.Node(alpha.Nodes[0]))
	unmapped := node.Next().Next() // close to a node's address, as a mapping would be

	gamma.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas=0")
	gamma.Kubectl(t, "-n", "liqo", "wait", "pod", "-l", gatewayLabel, "--for=delete", "--timeout=60s")
	defer func() {
		gamma.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas=1")
		established(t, gamma, alpha)
		established(t, gamma, beta)
	}()
	peer := intrude(t, gamma, view)

	port := uint16(traffic.EchoPort)
	send := func(t *testing.T, from, to netip.Addr, port uint16, what string) {
		t.Helper()
		peer.Run(
			t, filepath.Join(clusters.Bin, "traffic"), "send", "--link", intruder, "--from", from.String(), "--to", traffic.Endpoint(to, int(port)),
			"--word", what,
		)
	}
	both := []*env.Cluster{alpha, beta}
	onlyBeta := both[1:] // for gamma the same address may be one of alpha's pods
	for _, c := range []struct {
		name     string
		from, to netip.Addr
		port     uint16
		victims  []*env.Cluster
	}{
		{"alpha's service", assigned, dns, 53, both},
		{"alpha's pod by its own address", assigned, server.Address, port, both},
		{"alpha's node", assigned, alpha.Nodes[0].Address, traffic.HostPort, both},
		{"alpha's other node", assigned, alpha.Nodes[len(alpha.Nodes)-1].Address, traffic.HostPort, both},
		{"beta's pod through alpha", assigned, transit, port, onlyBeta},
		{"beta's node through alpha", assigned, betaNode, traffic.HostPort, onlyBeta},
		{"the node of another cluster", assigned, beta.Nodes[0].Address, traffic.HostPort, both},
		{"an unassigned address of the external network", assigned, unmapped, port, both},
		{"the gateway's pod", assigned, lane.Address, port, both},
		{"the world", assigned, netip.MustParseAddr("192.0.2.1"), port, both},
		{"the playground's host", assigned, netip.MustParseAddr("10.210.0.1"), port, both},
		{"as beta", transit, pod, port, both},
		{"as alpha's pod", server.Address, pod, port, both},
		{"as alpha's node", alpha.Nodes[0].Address, pod, port, both},
		{"as the world", netip.MustParseAddr("192.0.2.1"), pod, port, both},
	} {
		t.Run(c.name, func(t *testing.T) {
			what, allowed := word(), word()
			var forbidden, arrived []func() []seen
			for _, victim := range c.victims {
				for _, node := range victim.Nodes {
					forbidden = append(forbidden, capture(t, node.Net(), what))
				}
			}
			for _, node := range alpha.Nodes {
				arrived = append(arrived, capture(t, node.Net(), allowed))
			}
			// Alpha's gateway reconnects because its probes have no answer, so the tunnel works only at times. A packet that was sent between
			// two allowed packets which arrived could have arrived as well.
			start := time.Now()
			for round := 0; round < 3 || time.Since(start) < 500*time.Millisecond; round++ {
				peer.Handshake(t)
				send(t, assigned, pod, port, allowed)
				send(t, c.from, c.to, c.port, what)
				send(t, assigned, pod, port, allowed)
			}
			waitForStragglers()
			passed, seen := 0, 0
			for _, end := range arrived {
				passed += found(end())
			}
			for _, end := range forbidden {
				seen += found(end())
			}
			if passed == 0 {
				t.Error("no allowed packet arrived, so the absence of the others proves nothing")
			}
			if seen > 0 {
				t.Errorf("packets from %s to %s were seen %d times on nodes", c.from, c.to, seen)
			}
		})
	}
}

// waitForStragglers waits a fixed time before a test checks that packets did not arrive. Packets that pass take about a millisecond.
func waitForStragglers() { <-time.After(300 * time.Millisecond) }
