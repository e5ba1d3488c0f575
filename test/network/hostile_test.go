// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// hostilePeer takes gamma's gateway away and puts a program in its place that has gamma's key and sends what it likes. Only what is meant
// for alpha's pods and nodes, and comes from what gamma was given, arrives on a node of alpha or beta.
func hostilePeer(t *testing.T) {
	view := see(t, gamma, alpha)
	server := serversOf(t, alpha)[0]
	ours := valid(t)(view.Source(serversOf(t, gamma)[0].Address)) // what gamma's pod is to alpha
	pod := valid(t)(view.Pod(server.Address))
	transit := valid(t)(see(t, alpha, beta).Pod(serversOf(t, beta)[0].Address))
	betaNode := valid(t)(see(t, alpha, beta).Node(beta.Nodes[0]))
	lane := gateway(t, alpha, 0)
	dns, err := netip.ParseAddr(alpha.Kubectl(t, "-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	node := valid(t)(view.Node(alpha.Nodes[0]))
	unmapped := node.Next().Next() // as near to a node as a mapping could be

	gamma.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas=0")
	gamma.Kubectl(t, "-n", "liqo", "wait", "pod", "-l", gatewayLabel, "--for=delete", "--timeout=60s")
	defer func() {
		gamma.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas=1")
		established(t, gamma, alpha, 90*time.Second)
		established(t, gamma, beta, 90*time.Second)
	}()
	evil := intrude(t, gamma, view)

	port := uint16(env.EchoPort)
	sends := func(t *testing.T, from, to netip.Addr, port uint16, what string) {
		t.Helper()
		evil.Run(t, filepath.Join(clusters.Bin, "traffic"), "send", "--link", intruder, "--from", from.String(), "--to", at(to, int(port)), "--word", what)
	}
	both := []*env.Cluster{alpha, beta}
	onlyBeta := both[1:] // the same address may be one of alpha's own pods, as gamma calls them
	for _, c := range []struct {
		name     string
		from, to netip.Addr
		port     uint16
		victims  []*env.Cluster
	}{
		{"alpha's service", ours, dns, 53, both},
		{"alpha's pod by the address it has itself", ours, server.Address, port, both},
		{"alpha's node", ours, alpha.Nodes[0].Address, env.HostPort, both},
		{"alpha's other node", ours, alpha.Nodes[len(alpha.Nodes)-1].Address, env.HostPort, both},
		{"beta's pod through alpha", ours, transit, port, onlyBeta},
		{"beta's node through alpha", ours, betaNode, env.HostPort, onlyBeta},
		{"the node of another cluster", ours, beta.Nodes[0].Address, env.HostPort, both},
		{"an address of the external network that is nobody's", ours, unmapped, port, both},
		{"the gateway's pod", ours, lane.Address, port, both},
		{"the world", ours, netip.MustParseAddr("192.0.2.1"), port, both},
		{"the playground's host", ours, netip.MustParseAddr("10.210.0.1"), port, both},
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
			// Alpha's gateway dials anew, as nobody answers its probes, so the tunnel is there only sometimes. What is sent between two
			// packets that may pass, and did, had its chance.
			began := time.Now()
			for round := 0; round < 3 || time.Since(began) < 500*time.Millisecond; round++ {
				evil.Handshake(t)
				sends(t, ours, pod, port, allowed)
				sends(t, c.from, c.to, c.port, what)
				sends(t, ours, pod, port, allowed)
			}
			<-time.After(300 * time.Millisecond) // what is not there by now was not let through: the allowed ones take a millisecond
			passed, seen := 0, 0
			for _, end := range arrived {
				passed += found(end())
			}
			for _, end := range forbidden {
				seen += found(end())
			}
			if passed == 0 {
				t.Error("what is allowed did not arrive, so that nothing else does proves nothing")
			}
			if seen > 0 {
				t.Errorf("packets from %s to %s were seen %d times on nodes", c.from, c.to, seen)
			}
		})
	}
}
