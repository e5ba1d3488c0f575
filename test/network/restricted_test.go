// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/traffic"
)

const pairOfPods = `
apiVersion: v1
kind: Pod
metadata: {name: here, namespace: %[1]s}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers: [{name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}]
---
apiVersion: v1
kind: Pod
metadata: {name: there, namespace: %[1]s}
spec:
  nodeName: %[3]s
  terminationGracePeriodSeconds: 0
  containers: [{name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}]
`

// restrictedTraffic: with traffic=offloaded in two clusters, pods of an offloaded namespace reach each other, and no other pods or nodes do.
func restrictedTraffic(t *testing.T) {
	const namespace = "belongs"
	set := func(traffic string) {
		t.Helper()
		for _, c := range []*env.Cluster{alpha, beta} {
			c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.config.traffic="+traffic)
		}
		for _, pair := range [][2]*env.Cluster{{alpha, beta}, {beta, alpha}} {
			established(t, pair[0], pair[1])
		}
	}
	t.Cleanup(func() { set("full") })
	set("offloaded")
	alpha.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { alpha.Kubectl(t, "delete", "namespace", namespace, "--timeout=60s") })
	alpha.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "LocalAndRemote")
	node, err := alpha.VirtualNode(beta)
	if err != nil {
		t.Fatal(err)
	}
	alpha.Apply(t, fmt.Sprintf(pairOfPods, namespace, alpha.Nodes[0].Name, node.Name))
	alpha.Kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod/here", "pod/there", "--timeout=60s")
	remote := beta.Kubectl(t, "get", "namespaces", "-l", labels.RemoteClusterID+"="+alpha.ID(t), "-o", "jsonpath={.items[0].metadata.name}")
	local, err := alpha.Pods(namespace, nil)
	if err != nil || len(local) != 1 {
		t.Fatalf("%d local pods, %v", len(local), err)
	}
	offloaded, err := beta.Pods(remote, nil)
	if err != nil || len(offloaded) != 1 {
		t.Fatalf("%d offloaded pods, %v", len(offloaded), err)
	}
	fromAlpha, fromBeta := see(t, alpha, beta), see(t, beta, alpha)
	here, there := inside(t, local[0]), inside(t, offloaded[0])
	hereAddress, thereAddress := valid(t)(fromBeta.Pod(local[0].Address)), valid(t)(fromAlpha.Pod(offloaded[0].Address))
	// The gateways observe the addresses a moment after the kubelets.
	env.Eventually(t, env.Hang, "the pods of the offloaded namespace reach each other", func() (string, bool) {
		_, out := ask(t, here, "http", traffic.Endpoint(thereAddress, traffic.EchoPort+1), "--timeout", "1s")
		_, back := ask(t, there, "udp", traffic.Endpoint(hereAddress, traffic.EchoPort), "--timeout", "1s")
		return fmt.Sprint(out, back), out == nil && back == nil
	})
	must(
		t, here, valid(t)(fromAlpha.Source(local[0].Address)), "http", traffic.Endpoint(thereAddress, traffic.EchoPort+1), "--bytes", "10000000",
		"--timeout", "30s",
	)

	other, theirs := traffic.AllServers(t, alpha)[0], traffic.AllServers(t, beta)[0]
	theirAddress, otherAddress := valid(t)(fromAlpha.Pod(theirs.Address)), valid(t)(fromBeta.Pod(other.Address))
	for what, one := range map[string]struct {
		from netns.Place
		to   netip.Addr
		port int
	}{
		"another pod to an offloaded one":      {inside(t, other), thereAddress, traffic.EchoPort},
		"a pod to another one of the provider": {here, theirAddress, traffic.EchoPort},
		"an offloaded pod to another one":      {there, otherAddress, traffic.EchoPort},
		"two others":                           {inside(t, other), theirAddress, traffic.EchoPort},
		"an offloaded pod to a node":           {there, valid(t)(fromBeta.Node(alpha.Nodes[0])), traffic.HostPort},
	} {
		for protocol, port := range map[string]int{"udp": one.port, "http": one.port + 1} {
			_, err := ask(t, one.from, protocol, traffic.Endpoint(one.to, port), "--timeout", "300ms")
			if err == nil || !strings.Contains(err.Error(), "timeout") && !strings.Contains(err.Error(), "deadline") {
				t.Errorf("%s: %s to %s: %v, want no answer", what, protocol, one.to, err)
			}
		}
	}
	// Gamma restricts nothing, but beta's own value counts for beta's pods.
	if _, err := ask(t, inside(t, traffic.AllServers(t, gamma)[0]), "udp", traffic.Endpoint(valid(t)(see(t, gamma, beta).
		Pod(theirs.Address)), traffic.EchoPort), "--timeout", "300ms"); err == nil {
		t.Error("a pod of a third cluster reaches a pod of beta that belongs to no peering")
	}
}
