// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// answer is what `traffic check` prints.
type answer struct{ From, Took string }

// ask checks once from a place. Whoever was not ready at once has a second chance: a route that is being made is not a fault.
func ask(t *testing.T, from env.Place, args ...string) (answer, error) {
	t.Helper()
	var said env.Result
	for range 2 {
		said = from.Try(filepath.Join(clusters.Bin, "traffic"), append([]string{"check"}, args...)...)
		var a answer
		if said.Code == 0 && json.Unmarshal([]byte(said.Out), &a) == nil {
			return a, nil
		}
	}
	return answer{}, fmt.Errorf("from %s: %s", from.Name, strings.TrimSpace(said.Err))
}

// must asks and compares the address that the server saw; invalid: any.
func must(t *testing.T, from env.Place, want netip.Addr, args ...string) {
	t.Helper()
	a, err := ask(t, from, args...)
	switch {
	case err != nil:
		t.Error(err)
	case want.IsValid() && args[0] != "icmp" && a.From != want.String():
		t.Errorf("from %s, %v: the server saw %s, want %s", from.Name, args, a.From, want)
	}
}

func at(address netip.Addr, port int) string {
	return netip.AddrPortFrom(address, uint16(port)).String()
}

// kinds are the protocols and sizes of each pair. An HTTP body goes there and comes back.
func kinds(address netip.Addr, port int) [][]string {
	return [][]string{
		{"http", at(address, port+1), "--bytes", "1"},
		{"http", at(address, port+1), "--bytes", "10000000", "--timeout", "30s"},
		{"udp", at(address, port), "--bytes", "1"},
		{"udp", at(address, port), "--bytes", "20000"},
		{"icmp", at(address, port), "--bytes", "1"},
		{"icmp", at(address, port), "--bytes", "8000"},
	}
}

// matrix: every pod and every node of a cluster reaches every pod of the others, as the address that the documentation says.
func matrix(t *testing.T) {
	cells := 0
	for _, pair := range directions() {
		view := see(t, pair[0], pair[1])
		for _, server := range serversOf(t, pair[1]) {
			address := valid(t)(view.Pod(server.Address))
			for _, client := range serversOf(t, pair[0]) {
				t.Run(fmt.Sprintf("pod %s to pod %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
					for _, args := range kinds(address, env.EchoPort) {
						must(t, inside(t, client), valid(t)(view.Source(client.Address)), args...)
						cells++
					}
				})
				t.Run(fmt.Sprintf("node %s to pod %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
					for _, args := range kinds(address, env.EchoPort) {
						must(t, client.Node.Net(), valid(t)(view.NodeSource(client.Node)), args...)
						cells++
					}
				})
			}
		}
	}
	clusters.Measure("who reaches whom", "%d checks", cells)
}

// sample is a part of the matrix that takes a second: from every pod of here to a pod of there, and the other way.
func sample(t *testing.T, here, there *env.Cluster) {
	t.Helper()
	for _, pair := range [][2]*env.Cluster{{here, there}, {there, here}} {
		view := see(t, pair[0], pair[1])
		all := serversOf(t, pair[1])
		address := valid(t)(view.Pod(all[len(all)-1].Address))
		for _, client := range serversOf(t, pair[0]) {
			source := valid(t)(view.Source(client.Address))
			must(t, inside(t, client), source, "http", at(address, env.EchoPort+1), "--bytes", "1000000", "--timeout", "20s")
			must(t, inside(t, client), source, "udp", at(address, env.EchoPort), "--bytes", "5000")
		}
	}
}

// answered waits until a pod of here hears from one of there, and both clusters say so.
func answered(t *testing.T, here, there *env.Cluster, within time.Duration) time.Duration {
	t.Helper()
	client, server := serversOf(t, here)[0], serversOf(t, there)[0]
	address := valid(t)(see(t, here, there).Pod(server.Address))
	took := env.Eventually(t, within, here.Name+"'s pods are answered by "+there.Name+"'s", func() (string, bool) {
		a, err := ask(t, inside(t, client), "http", at(address, env.EchoPort+1), "--timeout", "1s")
		return fmt.Sprint(a, err), err == nil
	})
	established(t, here, there, 30*time.Second)
	established(t, there, here, 30*time.Second)
	return took
}

// services: NodePorts of the other cluster, and Services here whose endpoints are there.
func services(t *testing.T) {
	for _, pair := range directions() {
		here, there := pair[0], pair[1]
		view := see(t, here, there)
		server := serversOf(t, there)[0]
		remote := valid(t)(view.Pod(server.Address))
		name := "in-" + there.Name
		here.Apply(t, fmt.Sprintf(remoteService, name, remote))
		ip, err := netip.ParseAddr(here.Kubectl(t, "-n", env.Namespace, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}"))
		if err != nil {
			t.Fatal(err)
		}
		// kube-proxy has programmed it, its node ports too, when the first answer comes: that is Kubernetes' business, on each node its own,
		// so it is waited for.
		for _, client := range serversOf(t, here) {
			pod := inside(t, client)
			env.Eventually(t, 20*time.Second, "the Service "+name+" of "+here.Name+" answers on "+client.Node.Name, func() (string, bool) {
				a, err := ask(t, pod, "http", at(ip, env.EchoPort+1), "--timeout", "1s")
				return fmt.Sprint(a, err), err == nil
			})
		}
		for _, client := range serversOf(t, here) {
			t.Run(fmt.Sprintf("%s/%s", client.Node.Name, name), func(t *testing.T) {
				pod, source := inside(t, client), valid(t)(view.Source(client.Address))
				must(t, pod, source, "http", at(ip, env.EchoPort+1), "--bytes", "10000000", "--timeout", "30s")
				must(t, pod, source, "udp", at(ip, env.EchoPort), "--bytes", "1000")
				must(t, client.Node.Net(), valid(t)(view.NodeSource(client.Node)), "http", at(ip, env.EchoPort+1))
				throughNodePorts(t, here, there, pod, name)
			})
		}
		here.Kubectl(t, "-n", env.Namespace, "delete", "service/"+name, "endpointslice/"+name)
	}
}

// throughNodePorts asks at the nodes of here for the Service with the remote endpoint, and at those of there for its own pods.
func throughNodePorts(t *testing.T, here, there *env.Cluster, pod env.Place, service string) {
	t.Helper()
	any := netip.Addr{} // kube-proxy masquerades as it likes
	for _, node := range here.Nodes {
		web, udp := here.NodePort(t, service, "http"), here.NodePort(t, service, "udp")
		for _, from := range []env.Place{pod, env.Router()} { // the router is a client outside of all clusters
			must(t, from, any, "http", node.Address.String()+":"+web, "--bytes", "1000000", "--timeout", "30s")
			must(t, from, any, "udp", node.Address.String()+":"+udp, "--bytes", "1000")
		}
	}
	view := see(t, here, there)
	for _, node := range there.Nodes {
		address := valid(t)(view.Node(node)).String()
		must(t, pod, any, "http", address+":"+there.NodePort(t, "server", "http"), "--bytes", "1000000", "--timeout", "30s")
		must(t, pod, any, "udp", address+":"+there.NodePort(t, "server", "udp"), "--bytes", "1000")
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

func see(t *testing.T, here, there *env.Cluster) env.View {
	t.Helper()
	view, err := here.See(there)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func serversOf(t *testing.T, c *env.Cluster) []env.Pod {
	t.Helper()
	var all []env.Pod
	// Kubernetes may take its pods for not Ready for a while after its API server, or a node, was away.
	env.Eventually(t, 2*time.Minute, "every node of "+c.Name+" has a server that is Ready", func() (string, bool) {
		var err error
		all, err = c.Servers()
		return fmt.Sprintf("%d of %d, %v", len(all), len(c.Nodes), err), len(all) == len(c.Nodes)
	})
	return all
}

func inside(t *testing.T, pod env.Pod) env.Place {
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
