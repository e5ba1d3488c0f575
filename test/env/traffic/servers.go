// SPDX-License-Identifier: Apache-2.0

// Package traffic is servers on all nodes of a cluster, and requests from every node and pod of another to them.
//
// It knows the program test/traffic and no rule of the network but the addresses that package networks computes. Proof: test/network, which uses it.
package traffic

import (
	"fmt"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// Namespace is where the servers run, and what they are asked at.
const (
	Namespace = "traffic"
	EchoPort  = 7000 // TCP and UDP; HTTP is the next one
	HostPort  = 7100 // the same of the servers on the nodes' own network
)

// Servers are the pods of DaemonSet server, one on each node.
func Servers(c *env.Cluster) ([]env.Pod, error) {
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
func Serve(t testing.TB, c *env.Cluster) {
	t.Helper()
	c.Apply(t, servers)
	env.Eventually(t, 90*time.Second, "servers run on all nodes of "+c.Name, func() (string, bool) {
		all, err := Servers(c)
		if err != nil {
			return err.Error(), false
		}
		hosts, err := c.Pods(Namespace, map[string]string{"app": "host"})
		return fmt.Sprintf("%d and %d pods, %v", len(all), len(hosts), err), len(all) == len(c.Nodes) && len(hosts) == len(c.Nodes)
	})
}

// NodePort is the port that nodes have for a port of a Service.
func NodePort(t testing.TB, c *env.Cluster, service, port string) string {
	t.Helper()
	return c.Kubectl(t, "-n", Namespace, "get", "service", service, "-o", `jsonpath={.spec.ports[?(@.name=="`+port+`")].nodePort}`)
}
