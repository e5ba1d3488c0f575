// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/liqo/test/bed"
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

	port := uint16(bed.EchoPort)
	for _, c := range []struct {
		name     string
		from, to netip.Addr
		port     uint16
		arrives  bool
	}{
		{"what is allowed", ours, pod, port, true},
		{"alpha's service", ours, dns, 53, false},
		{"alpha's pod by the address it has itself", ours, server.Address, port, false},
		{"alpha's node", ours, alpha.Nodes[0].Address, bed.HostPort, false},
		{"alpha's other node", ours, alpha.Nodes[len(alpha.Nodes)-1].Address, bed.HostPort, false},
		{"beta's pod through alpha", ours, transit, port, false},
		{"beta's node through alpha", ours, betaNode, bed.HostPort, false},
		{"the node of another cluster", ours, beta.Nodes[0].Address, bed.HostPort, false},
		{"an address of the external network that is nobody's", ours, unmapped, port, false},
		{"the gateway's pod", ours, lane.Address, port, false},
		{"the world", ours, netip.MustParseAddr("192.0.2.1"), port, false},
		{"the playground's host", ours, netip.MustParseAddr("10.210.0.1"), port, false},
		{"as beta", transit, pod, port, false},
		{"as alpha's pod", server.Address, pod, port, false},
		{"as alpha's node", alpha.Nodes[0].Address, pod, port, false},
		{"as the world", netip.MustParseAddr("192.0.2.1"), pod, port, false},
		{"what is allowed, again", ours, pod, port, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			what := word()
			var ends []func() []seen
			for _, victim := range []*bed.Cluster{alpha, beta} {
				for _, node := range victim.Nodes {
					ends = append(ends, capture(t, node.Net(), what))
				}
			}
			evil.Run(t, filepath.Join(clusters.Bin, "traffic"), "send", "--link", intruder, "--from", c.from.String(), "--to", at(c.to, int(c.port)), "--word", what)
			<-time.After(300 * time.Millisecond) // what is not there by now was not let through: the allowed ones take a millisecond
			n := 0
			for _, end := range ends {
				n += found(end())
			}
			if c.arrives && n == 0 {
				t.Error("it did not arrive, so that nothing else does proves nothing")
			}
			if !c.arrives && n > 0 {
				t.Errorf("packets from %s to %s were seen %d times on nodes of alpha and beta", c.from, c.to, n)
			}
		})
	}
}
