// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// install installs Liqo again, in several clusters at a time, with a value that differs; empty: none.
func install(t *testing.T, values map[*env.Cluster]string) {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	for c, value := range values {
		args := []string{"install", "--cluster-name", c.Name, "--set", "networking.internal=true"}
		if value != "" {
			args = append(args, "--set", value)
		}
		running.Go(func() {
			if said := c.TryLiqoctl(args...); said.Code != 0 {
				mu.Lock()
				failed = append(failed, c.Name+": "+said.String())
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if len(failed) > 0 {
		t.Fatal(strings.Join(failed, "\n"))
	}
}

// nodePort: alpha is reached at a port of its nodes. Beta cannot be reached at all meanwhile, so there is no tunnel but the one that beta dials.
func nodePort(t *testing.T) {
	install(t, map[*env.Cluster]string{alpha: "gateway.service.type=NodePort", beta: "gateway.service.type=ClusterIP"})
	defer func() {
		install(t, map[*env.Cluster]string{alpha: "gateway.service.type=LoadBalancer", beta: "gateway.service.type=LoadBalancer"})
		for _, pair := range [][2]*env.Cluster{{alpha, beta}, {beta, alpha}, {gamma, alpha}, {gamma, beta}} {
			told(t, pair[0], pair[1], "a load balancer of "+pair[1].Name, func(at []network.Carrier) bool {
				return len(at) == 1 && len(at[0].Addresses) > 0 && !slices.Contains(nodeAddresses(pair[1]), at[0].Addresses[0])
			})
		}
		answered(t, alpha, beta, 60*time.Second)
		sample(t, alpha, beta)
	}()
	port, err := strconv.Atoi(alpha.Kubectl(t, "-n", "liqo", "get", "service", "liqo-gateway", "-o", "jsonpath={.spec.ports[0].nodePort}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []*env.Cluster{beta, gamma} {
		told(t, peer, alpha, fmt.Sprintf("port %d of alpha's nodes", port), func(at []network.Carrier) bool {
			if len(at) != 1 || int(at[0].Port) != port || len(at[0].Addresses) == 0 || at[0].Addresses[0] != gateway(t, alpha, 0).Node.Address.String() {
				return false // the node of the gateway comes first
			}
			addresses := slices.Sorted(slices.Values(at[0].Addresses))
			return slices.Equal(addresses, nodeAddresses(alpha))
		})
	}
	told(t, alpha, beta, "no way to beta", func(at []network.Carrier) bool { return len(at) == 0 })

	// What is connected stays so. New gateways know nothing but what they are told.
	for _, c := range []*env.Cluster{alpha, beta} {
		c.Kubectl(t, "-n", "liqo", "delete", "pod", "-l", gatewayLabel+"="+gatewayActive)
	}
	clusters.Measure("both gateways gone, only a NodePort to dial, to the first answer", "%.1f s", answered(t, alpha, beta, 60*time.Second).Seconds())
	sample(t, alpha, beta)
	answered(t, alpha, gamma, 60*time.Second)
}

// nodeAddresses are those of a cluster's nodes, sorted.
func nodeAddresses(c *env.Cluster) (all []string) {
	for _, node := range c.Nodes {
		all = append(all, node.Address.String())
	}
	slices.Sort(all)
	return all
}

// told waits until a cluster knows where the first gateway of another one can be reached.
func told(t *testing.T, here, there *env.Cluster, what string, right func([]network.Carrier) bool) {
	t.Helper()
	env.Eventually(t, 30*time.Second, here.Name+" is told of "+what, func() (string, bool) {
		view, err := here.See(there)
		if err != nil || len(view.Spec.Lanes) == 0 {
			return fmt.Sprintf("%d lanes, %v", len(view.Spec.Lanes), err), false
		}
		at := view.Spec.Lanes[0].Carriers
		return fmt.Sprintf("%+v", at), right(at)
	})
}

// nodesWithoutPodNetworks: where a pod is cannot be told by its address, so gateways watch pods. liqoctl finds it out.
func nodesWithoutPodNetworks(t *testing.T) {
	node := gamma.Nodes[0]
	had, back := takeNetwork(t, node)
	defer func() {
		back()
		install(t, map[*env.Cluster]string{gamma: "gateway.config.watchPods=false"})
		answered(t, alpha, gamma, 60*time.Second)
		sample(t, alpha, gamma)
	}()
	install(t, map[*env.Cluster]string{gamma: ""})
	if args := gamma.Kubectl(t, "-n", "liqo", "get", "deployment/liqo-gateway", "-o", "jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args, "--watch-pods") {
		t.Errorf("liqoctl did not find out that a node has no pod network: %s", args)
	}
	answered(t, alpha, gamma, 60*time.Second)
	sample(t, alpha, gamma)
	sample(t, beta, gamma)
	if routes := routesOf(t, gamma); strings.Contains(routes, "\n"+had+" ") {
		t.Errorf("the gateway has a route to %s, which is no node's:\n%s", had, routes)
	}
	podComesAndGoes(t, node)
	// Nobody has given the node a network meanwhile, or all of this proves nothing.
	if now := gamma.Kubectl(t, "get", "node", node.Name, "-o", "jsonpath={.spec.podCIDR}"); now != "" {
		t.Errorf("node %s has the pod network %s again", node.Name, now)
	}
}

// podComesAndGoes: a new pod is reached soon, and the route to one that is gone goes, too.
func podComesAndGoes(t *testing.T, node *env.Node) {
	t.Helper()
	c := node.Cluster
	c.Apply(t, fmt.Sprintf(newcomer, node.Name))
	t.Cleanup(func() { c.Kubectl(t, "-n", env.Namespace, "delete", "pod/newcomer", "--ignore-not-found") })
	var pod env.Pod
	env.Eventually(t, 60*time.Second, "a new pod runs", func() (string, bool) {
		all, err := c.Pods(env.Namespace, map[string]string{"app": "newcomer"})
		if err != nil || len(all) != 1 {
			return fmt.Sprintf("%d pods, %v", len(all), err), false
		}
		pod = all[0]
		return "", true
	})
	address, from := valid(t)(see(t, alpha, c).Pod(pod.Address)), inside(t, serversOf(t, alpha)[0])
	took := env.Eventually(t, repaired, "the new pod is reached", func() (string, bool) {
		a, err := ask(t, from, "http", at(address, env.EchoPort+1), "--timeout", "500ms")
		return fmt.Sprint(a, err), err == nil
	})
	clusters.Measure("pod on a node without a pod network is Ready, to first answer", "%.1f s", took.Seconds())
	route := "\n" + pod.Address.String() + " "
	if routes := routesOf(t, c); !strings.Contains(routes, route) {
		t.Errorf("%s is reached, but the gateway has no route to it:\n%s", pod.Address, routes)
	}
	c.Kubectl(t, "-n", env.Namespace, "delete", "pod/newcomer")
	env.Eventually(t, repaired, "the gateway's route to a pod that is gone goes", func() (string, bool) {
		routes := routesOf(t, c)
		return routes, !strings.Contains(routes, route)
	})
}

const newcomer = `
apiVersion: v1
kind: Pod
metadata: {name: newcomer, namespace: traffic, labels: {app: newcomer}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: server, image: "liqo.io/traffic:dev", imagePullPolicy: Never, args: [serve]}
`

// routesOf are the ways inwards of a cluster's gateway, each in a line of its own after a line feed.
func routesOf(t *testing.T, c *env.Cluster) string {
	t.Helper()
	return "\n" + inside(t, gateway(t, c, 0)).Run(t, "ip", "route", "show", "table", "18952")
}

// takeNetwork takes the pod network of a node away, and returns it, and how to give it back. The field cannot be changed, so the node is made
// anew; that its kubelet goes on as before is what lets its pods live. Kubernetes would give it another network, if one of the cluster's were
// left: they all belong to a second node, which is marked as a virtual one, so that nothing is expected of it. Only for a
// cluster of one node: the playground leads pods' packets between nodes by these networks.
func takeNetwork(t *testing.T, node *env.Node) (had string, back func()) {
	t.Helper()
	c := node.Cluster
	if len(c.Nodes) != 1 {
		t.Fatalf("%s has %d nodes, want one", c.Name, len(c.Nodes))
	}
	var was corev1.Node
	if err := c.API.Get(t.Context(), client.ObjectKey{Name: node.Name}, &was); err != nil {
		t.Fatal(err)
	}
	all := c.PodCIDR.Masked().String()
	hoard := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "hoard", Labels: map[string]string{labels.Type: labels.TypeVirtualNode}},
		Spec:       corev1.NodeSpec{PodCIDR: all, PodCIDRs: []string{all}, Unschedulable: true},
	}
	ctx := context.Background() // it has to be given back after a failure, too
	// While a network is free, the node is there with its own or not at all.
	change := func(first, second func() error, node *corev1.Node) {
		t.Helper()
		for _, do := range []func() error{func() error { return client.IgnoreNotFound(c.API.Delete(ctx, node)) }, first, second} {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	made := func(podCIDRs []string) *corev1.Node {
		node := was.DeepCopy()
		node.ObjectMeta = metav1.ObjectMeta{Name: was.Name, Labels: was.Labels, Annotations: was.Annotations}
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "", podCIDRs
		if len(podCIDRs) > 0 {
			node.Spec.PodCIDR = podCIDRs[0]
		}
		return node
	}
	bare, whole := made(nil), made(was.Spec.PodCIDRs)
	change(func() error { return c.API.Create(ctx, hoard.DeepCopy()) }, func() error { return c.API.Create(ctx, bare.DeepCopy()) }, bare)
	return was.Spec.PodCIDR, func() {
		t.Helper()
		change(func() error { return c.API.Delete(ctx, hoard) }, func() error { return c.API.Create(ctx, whole.DeepCopy()) }, whole)
	}
}
