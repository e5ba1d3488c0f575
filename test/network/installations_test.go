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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// install installs Liqo again in several clusters at the same time, each with another Helm value; an empty one is none.
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
			if result := c.TryLiqoctl(args...); result.Code != 0 {
				mu.Lock()
				failed = append(failed, c.Name+": "+result.String())
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if len(failed) > 0 {
		t.Fatal(strings.Join(failed, "\n"))
	}
}

// nodePort makes alpha reachable at a port of its nodes, and beta not at all, so that only beta can start the tunnel.
func nodePort(t *testing.T) {
	install(t, map[*env.Cluster]string{alpha: "gateway.service.type=NodePort", beta: "gateway.service.type=ClusterIP"})
	defer func() {
		install(t, map[*env.Cluster]string{alpha: "gateway.service.type=LoadBalancer", beta: "gateway.service.type=LoadBalancer"})
		for _, pair := range [][2]*env.Cluster{{alpha, beta}, {beta, alpha}, {gamma, alpha}, {gamma, beta}} {
			carriers(t, pair[0], pair[1], "a load balancer of "+pair[1].Name, func(at []network.Carrier) bool {
				return len(at) == 1 && len(at[0].Addresses) > 0 && !slices.Contains(nodeAddresses(pair[1]), at[0].Addresses[0])
			})
		}
		answered(t, alpha, beta)
		sample(t, alpha, beta)
	}()
	port, err := strconv.Atoi(alpha.Kubectl(t, "-n", "liqo", "get", "service", "liqo-gateway", "-o", "jsonpath={.spec.ports[0].nodePort}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []*env.Cluster{beta, gamma} {
		carriers(t, peer, alpha, fmt.Sprintf("port %d of alpha's nodes", port), func(at []network.Carrier) bool {
			if len(at) != 1 || int(at[0].Port) != port || len(at[0].Addresses) == 0 || at[0].Addresses[0] != gateway(t, alpha, 0).Node.Address.String() {
				return false // the node of the gateway comes first
			}
			addresses := slices.Sorted(slices.Values(at[0].Addresses))
			return slices.Equal(addresses, nodeAddresses(alpha))
		})
	}
	carriers(t, alpha, beta, "no carrier", func(at []network.Carrier) bool { return len(at) == 0 })

	// Existing tunnels would stay. New gateways have only the carriers of the status.
	for _, c := range []*env.Cluster{alpha, beta} {
		c.Kubectl(t, "-n", "liqo", "delete", "pod", "-l", gatewayLabel+"="+gatewayActive)
	}
	clusters.Measure("both gateways deleted, only a NodePort to dial, to the first answer", "%.1f s", answered(t, alpha, beta).Seconds())
	sample(t, alpha, beta)
	answered(t, alpha, gamma)
}

// nodeAddresses returns the addresses of a cluster's nodes, sorted.
func nodeAddresses(c *env.Cluster) (all []string) {
	for _, node := range c.Nodes {
		all = append(all, node.Address.String())
	}
	slices.Sort(all)
	return all
}

// carriers waits until a cluster has the right carriers for the first gateway of another one.
func carriers(t *testing.T, here, there *env.Cluster, what string, right func([]network.Carrier) bool) {
	t.Helper()
	env.Eventually(t, env.Hang, here.Name+" has "+what+" as carrier of "+there.Name, func() (string, bool) {
		view, err := networks.See(here, there)
		if err != nil || len(view.Spec.Lanes) == 0 {
			return fmt.Sprintf("%d lanes, %v", len(view.Spec.Lanes), err), false
		}
		at := view.Spec.Lanes[0].Carriers
		return fmt.Sprintf("%+v", at), right(at)
	})
}

// nodesWithoutPodNetworks takes the pod network of a node away. The address of a pod then does not show its node, so gateways must watch pods;
// liqoctl detects that.
func nodesWithoutPodNetworks(t *testing.T) {
	node := gamma.Nodes[0]
	removed, restore := takeNetwork(t, node)
	defer func() {
		restore()
		install(t, map[*env.Cluster]string{gamma: "gateway.config.watchPods=false"})
		answered(t, alpha, gamma)
		sample(t, alpha, gamma)
	}()
	install(t, map[*env.Cluster]string{gamma: ""})
	if args := gamma.Kubectl(
		t, "-n", "liqo", "get", "deployment/liqo-gateway", "-o", "jsonpath={.spec.template.spec.containers[0].args}",
	); !strings.Contains(args, "--watch-pods") {
		t.Errorf("liqoctl did not detect that a node has no pod network: %s", args)
	}
	answered(t, alpha, gamma)
	sample(t, alpha, gamma)
	sample(t, beta, gamma)
	if routes := routesOf(t, gamma); strings.Contains(routes, "\n"+removed+" ") {
		t.Errorf("the gateway has a route to %s, which is not a node's network:\n%s", removed, routes)
	}
	podRoute(t, node)
	// If Kubernetes had assigned a network meanwhile, the checks above would prove nothing.
	if now := gamma.Kubectl(t, "get", "node", node.Name, "-o", "jsonpath={.spec.podCIDR}"); now != "" {
		t.Errorf("node %s has the pod network %s again", node.Name, now)
	}
}

// podRoute checks that a new pod is reachable, and that the route to a deleted pod is removed.
func podRoute(t *testing.T, node *env.Node) {
	t.Helper()
	c := node.Cluster
	c.Apply(t, fmt.Sprintf(newcomer, node.Name))
	t.Cleanup(func() { c.Kubectl(t, "-n", traffic.Namespace, "delete", "pod/newcomer", "--ignore-not-found") })
	var pod env.Pod
	env.Eventually(t, env.Hang, "a new pod runs", func() (string, bool) {
		all, err := c.Pods(traffic.Namespace, map[string]string{"app": "newcomer"})
		if err != nil || len(all) != 1 {
			return fmt.Sprintf("%d pods, %v", len(all), err), false
		}
		pod = all[0]
		return "", true
	})
	address, from := valid(t)(see(t, alpha, c).Pod(pod.Address)), inside(t, traffic.AllServers(t, alpha)[0])
	took := env.Eventually(t, outageBound, "the new pod is reached", func() (string, bool) {
		a, err := ask(t, from, "http", traffic.Endpoint(address, traffic.EchoPort+1), "--timeout", "500ms")
		return fmt.Sprint(a, err), err == nil
	})
	clusters.Measure("pod on a node without a pod network is Ready, to first answer", "%s", versus(took, repaired))
	route := "\n" + pod.Address.String() + " "
	if routes := routesOf(t, c); !strings.Contains(routes, route) {
		t.Errorf("%s is reached, but the gateway has no route to it:\n%s", pod.Address, routes)
	}
	c.Kubectl(t, "-n", traffic.Namespace, "delete", "pod/newcomer")
	env.Eventually(t, outageBound, "the gateway removes the route to a deleted pod", func() (string, bool) {
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
  - {name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}
`

// routesOf returns the routes of a cluster's gateway to its own pods, with a line feed before each.
func routesOf(t *testing.T, c *env.Cluster) string {
	t.Helper()
	return "\n" + inside(t, gateway(t, c, 0)).Run(t, "ip", "route", "show", "table", "18952")
}

// takeNetwork removes the pod network of a node. It returns the network and a function that restores it. The field is immutable, so
// takeNetwork replaces the Node object; the kubelet and the pods continue. Kubernetes would assign another network if one were free, so a
// second node, labelled as a virtual one, holds the whole pod network of the cluster. This works only in a cluster with one node, because
// the playground routes between nodes by these networks.
func takeNetwork(t *testing.T, node *env.Node) (removed string, restore func()) {
	t.Helper()
	c := node.Cluster
	if len(c.Nodes) != 1 {
		t.Fatalf("%s has %d nodes, want one", c.Name, len(c.Nodes))
	}
	var original corev1.Node
	if err := c.API.Get(t.Context(), client.ObjectKey{Name: node.Name}, &original); err != nil {
		t.Fatal(err)
	}
	all := c.PodCIDR.Masked().String()
	holder := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "holder", Labels: map[string]string{labels.Type: labels.TypeVirtualNode}},
		Spec:       corev1.NodeSpec{PodCIDR: all, PodCIDRs: []string{all}, Unschedulable: true},
	}
	ctx := context.Background() // the network must be restored after a failure as well
	// While the pod network is free, the Node exists either with its own network or not at all.
	change := func(first, second func() error, node *corev1.Node) {
		t.Helper()
		for _, do := range []func() error{func() error { return client.IgnoreNotFound(c.API.Delete(ctx, node)) }, first, second} {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	replacement := func(podCIDRs []string) *corev1.Node {
		node := original.DeepCopy()
		node.ObjectMeta = metav1.ObjectMeta{Name: original.Name, Labels: original.Labels, Annotations: original.Annotations}
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "", podCIDRs
		if len(podCIDRs) > 0 {
			node.Spec.PodCIDR = podCIDRs[0]
		}
		return node
	}
	bare, whole := replacement(nil), replacement(original.Spec.PodCIDRs)
	change(func() error { return c.API.Create(ctx, holder.DeepCopy()) }, func() error { return c.API.Create(ctx, bare.DeepCopy()) }, bare)
	return original.Spec.PodCIDR, func() {
		t.Helper()
		change(func() error { return c.API.Delete(ctx, holder) }, func() error { return c.API.Create(ctx, whole.DeepCopy()) }, whole)
	}
}
