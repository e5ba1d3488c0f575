// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pod is a running pod of a node.
type Pod struct {
	Name, UID string
	Address   netip.Addr
	Node      *Node
	Restarts  int32
	Labels    map[string]string
}

// Namespace is where the servers run, and what they are asked at.
const (
	Namespace = "traffic"
	EchoPort  = 7000 // TCP and UDP; HTTP is the next one
	HostPort  = 7100 // the same of the servers on the nodes' own network
)

// Node finds one by name.
func (c *Cluster) Node(name string) *Node {
	i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return c.Nodes[i]
}

// Pods are those that run and are Ready, in the order of their nodes.
func (c *Cluster) Pods(namespace string, labels map[string]string) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list corev1.PodList
	if err := c.API.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", c.Name, err)
	}
	var all []Pod
	for _, pod := range list.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if !ready || pod.DeletionTimestamp != nil || err != nil || c.Node(pod.Spec.NodeName) == nil {
			continue
		}
		found := Pod{Name: pod.Name, UID: string(pod.UID), Address: address, Node: c.Node(pod.Spec.NodeName), Labels: pod.Labels}
		for _, status := range pod.Status.ContainerStatuses {
			found.Restarts += status.RestartCount
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Pod) int { return strings.Compare(a.Node.Name+a.Name, b.Node.Name+b.Name) })
	return all, nil
}

// Servers are the pods of DaemonSet server, one on each node.
func (c *Cluster) Servers() ([]Pod, error) {
	return c.Pods(Namespace, map[string]string{"app": "server"})
}

const servers = `
apiVersion: v1
kind: Namespace
metadata: {name: traffic}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: server, namespace: traffic}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}
      containers:
      - {name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: host, namespace: traffic}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}
      containers:
      - {name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve, --port, "7100"]}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: traffic}
spec:
  type: NodePort
  selector: {app: server}
  ports:
  - {name: tcp, port: 7000, protocol: TCP}
  - {name: udp, port: 7000, protocol: UDP}
  - {name: http, port: 7001, protocol: TCP}
`

// Serve starts a server on each node, as a pod and on the node's own network, with a Service of the pods.
func (c *Cluster) Serve(t testing.TB) {
	t.Helper()
	c.Apply(t, servers)
	Eventually(t, 90*time.Second, "servers run on all nodes of "+c.Name, func() (string, bool) {
		all, err := c.Servers()
		if err != nil {
			return err.Error(), false
		}
		hosts, err := c.Pods(Namespace, map[string]string{"app": "host"})
		return fmt.Sprintf("%d and %d pods, %v", len(all), len(hosts), err), len(all) == len(c.Nodes) && len(hosts) == len(c.Nodes)
	})
}

// NodePort is the port that nodes have for a port of a Service.
func (c *Cluster) NodePort(t testing.TB, service, port string) string {
	t.Helper()
	return c.Kubectl(t, "-n", Namespace, "get", "service", service, "-o", `jsonpath={.spec.ports[?(@.name=="`+port+`")].nodePort}`)
}
