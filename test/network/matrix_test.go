// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// ask runs one check from a place.
func ask(t *testing.T, from netns.Place, args ...string) (traffic.Answer, error) {
	t.Helper()
	return traffic.Ask(clusters, from.Name, func(args ...string) execution.Result {
		return from.Try(filepath.Join(clusters.Bin, "traffic"), args...)
	}, args...)
}

// must runs one check and compares the address that the server saw; an invalid address stands for any.
func must(t *testing.T, from netns.Place, want netip.Addr, args ...string) {
	t.Helper()
	a, err := ask(t, from, args...)
	switch {
	case err != nil:
		t.Error(err)
	case want.IsValid() && args[0] != "icmp" && a.From != want.String():
		t.Errorf("from %s, %v: the server saw %s, want %s", from.Name, args, a.From, want)
	}
}

// matrix checks that every pod and every node of a cluster reaches every pod of the others, under the addresses that the documentation
// describes.
func matrix(t *testing.T) {
	checks := 0
	for _, pair := range directions() {
		checks += traffic.Matrix(t, clusters, pair[0], pair[1])
	}
	clusters.Measure("reachability", "%d checks", checks)
}

// sample is a part of the matrix that takes a second: from every pod of each cluster to a pod of the other one.
func sample(t *testing.T, here, there *env.Cluster) {
	t.Helper()
	for _, pair := range [][2]*env.Cluster{{here, there}, {there, here}} {
		view := see(t, pair[0], pair[1])
		all := traffic.AllServers(t, pair[1])
		address := valid(t)(view.Pod(all[len(all)-1].Address))
		for _, client := range traffic.AllServers(t, pair[0]) {
			source := valid(t)(view.Source(client.Address))
			must(t, inside(t, client), source, "http", traffic.Endpoint(address, traffic.EchoPort+1), "--bytes", "1000000", "--timeout", "20s")
			must(t, inside(t, client), source, "udp", traffic.Endpoint(address, traffic.EchoPort), "--bytes", "5000")
		}
	}
}

// answered waits until a pod of there answers one of here, and both clusters report Established. It returns the time to the answer.
func answered(t *testing.T, here, there *env.Cluster) time.Duration {
	t.Helper()
	client, server := traffic.AllServers(t, here)[0], traffic.AllServers(t, there)[0]
	address := valid(t)(see(t, here, there).Pod(server.Address))
	took := env.Eventually(t, env.Hang, "pods of "+there.Name+" answer those of "+here.Name, func() (string, bool) {
		a, err := ask(t, inside(t, client), "http", traffic.Endpoint(address, traffic.EchoPort+1), "--timeout", "1s")
		return fmt.Sprint(a, err), err == nil
	})
	established(t, here, there)
	established(t, there, here)
	return took
}

// services checks NodePorts of the other cluster, and local Services with endpoints in the other cluster.
func services(t *testing.T) {
	for _, pair := range directions() {
		here, there := pair[0], pair[1]
		view := see(t, here, there)
		server := traffic.AllServers(t, there)[0]
		remote := valid(t)(view.Pod(server.Address))
		name := "in-" + there.Name
		here.Apply(t, fmt.Sprintf(remoteService, name, remote))
		ip, err := netip.ParseAddr(here.Kubectl(t, "-n", traffic.Namespace, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}"))
		if err != nil {
			t.Fatal(err)
		}
		// The first answer shows that kube-proxy of that node has programmed the Service and its node ports.
		for _, client := range traffic.AllServers(t, here) {
			pod := inside(t, client)
			env.Eventually(t, env.Hang, "the Service "+name+" of "+here.Name+" answers on "+client.Node.Name, func() (string, bool) {
				a, err := ask(t, pod, "http", traffic.Endpoint(ip, traffic.EchoPort+1), "--timeout", "1s")
				return fmt.Sprint(a, err), err == nil
			})
		}
		for _, client := range traffic.AllServers(t, here) {
			t.Run(fmt.Sprintf("%s/%s", client.Node.Name, name), func(t *testing.T) {
				pod, source := inside(t, client), valid(t)(view.Source(client.Address))
				must(t, pod, source, "http", traffic.Endpoint(ip, traffic.EchoPort+1), "--bytes", "10000000", "--timeout", "30s")
				must(t, pod, source, "udp", traffic.Endpoint(ip, traffic.EchoPort), "--bytes", "1000")
				must(t, client.Node.Net(), valid(t)(view.NodeSource(client.Node)), "http", traffic.Endpoint(ip, traffic.EchoPort+1))
				throughNodePorts(t, here, there, pod, name)
			})
		}
		here.Kubectl(t, "-n", traffic.Namespace, "delete", "service/"+name, "endpointslice/"+name)
	}
}

// throughNodePorts uses node ports of the local Service with the remote endpoint, and node ports of the other cluster's own Service.
func throughNodePorts(t *testing.T, here, there *env.Cluster, pod netns.Place, service string) {
	t.Helper()
	any := netip.Addr{} // kube-proxy may masquerade
	for _, node := range here.Nodes {
		web, udp := traffic.NodePort(t, here, service, "http"), traffic.NodePort(t, here, service, "udp")
		for _, from := range []netns.Place{pod, netns.Router()} { // the router is a client outside of all clusters
			must(t, from, any, "http", node.Address.String()+":"+web, "--bytes", "1000000", "--timeout", "30s")
			must(t, from, any, "udp", node.Address.String()+":"+udp, "--bytes", "1000")
		}
	}
	view := see(t, here, there)
	for _, node := range there.Nodes {
		address := valid(t)(view.Node(node)).String()
		must(t, pod, any, "http", address+":"+traffic.NodePort(t, there, "server", "http"), "--bytes", "1000000", "--timeout", "30s")
		must(t, pod, any, "udp", address+":"+traffic.NodePort(t, there, "server", "udp"), "--bytes", "1000")
	}
}

const remoteService = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: traffic}
spec:
  type: NodePort
  ports:
  - {name: udp, port: 7000, protocol: UDP}
  - {name: http, port: 7001, protocol: TCP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: traffic, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: tests}}
addressType: IPv4
ports:
- {name: udp, port: 7000, protocol: UDP}
- {name: http, port: 7001, protocol: TCP}
endpoints:
- addresses: ["%[2]s"]
  conditions: {ready: true}
`

func see(t *testing.T, here, there *env.Cluster) networks.View {
	t.Helper()
	view, err := networks.See(here, there)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func inside(t *testing.T, pod env.Pod) netns.Place {
	t.Helper()
	place, err := pod.Net()
	if err != nil {
		t.Fatal(err)
	}
	return place
}

func valid(t *testing.T) func(netip.Addr, error) netip.Addr {
	t.Helper()
	return func(address netip.Addr, err error) netip.Addr {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
}
