// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
)

// carrierKinds are the carriers, in the order in which gateways prefer them.
var carrierKinds = []string{"UDP", "TLS", "WebSocket"}

// condition is a state of the link between the clusters.
type condition struct {
	name   string
	faults [][]string // of the playground
}

var conditions = []condition{
	{"without loss", nil},
	{"1 % loss each way", [][]string{{"loss", "1%"}}},
	{"100 Mbit/s, 10 ms each way", [][]string{{"bandwidth", "100mbit"}, {"delay", "10ms"}}},
}

// socketPort is a NodePort of the provider that leads to the gateway, for WebSockets: so that they can be let through without TLS, which has another port.
const socketPort = 30876

const socketService = `
apiVersion: v1
kind: Service
metadata: {name: bench-socket, namespace: liqo}
spec:
  type: NodePort
  selector: {net.liqo.io/gateway: active}
  ports: [{name: stream, port: 5876, nodePort: 30876, protocol: TCP}]
`

// open are the ports that stay open from the consumer to the provider so that a carrier is the best one that passes; nil: all, in both directions.
var open = map[string][]string{
	"UDP":       nil,
	"TLS":       {"tcp/443", "tcp/6443", "icmp", "--one-way"},
	"WebSocket": {fmt.Sprintf("tcp/%d", socketPort), "tcp/6443", "icmp", "--one-way"},
}

// carriers moves the tunnel between two clusters from one carrier to another.
type carriers struct {
	clusters           *env.Env
	consumer, provider *env.Cluster
}

// offer lets the gateway of the provider accept streams: TLS at 443, WebSockets at a port of their own.
func (c carriers) offer(t *testing.T) {
	t.Helper()
	c.provider.Apply(t, socketService)
	c.provider.Liqoctl(t, "install", "--cluster-name", c.provider.Name, "--set", "networking.internal=true", "--set", streamSettings,
		"--set", fmt.Sprintf("gateway.config.webSocketURL=https://%s:%d/liqo", gateway(t, c.provider).Node.Address, socketPort))
	t.Cleanup(func() {
		c.provider.Kubectl(t, "-n", "liqo", "delete", "service", "bench-socket")
		c.fault(t, "clear")
	})
}

// streamSettings has the gateway accept streams.
const streamSettings = "gateway.config.streamPort=443"

func (c carriers) fault(t *testing.T, what string, more ...string) {
	t.Helper()
	if r := c.clusters.Playground(append([]string{"fault", what, c.consumer.Name, c.provider.Name}, more...)...); r.Code != 0 {
		t.Fatal(r)
	}
}

// use moves the tunnel.
func (c carriers) use(t *testing.T, kind string) {
	t.Helper()
	if ports := open[kind]; ports != nil {
		c.fault(t, "allow", ports...)
	} else {
		c.fault(t, "heal")
	}
	env.Eventually(t, time.Minute, "the tunnel goes over "+kind, func() (string, bool) {
		view, err := networks.See(c.consumer, c.provider)
		return fmt.Sprint(view.Carrier, " ", view.Lanes, " ", err), err == nil && view.Carrier == kind && view.Lanes == "lane 0 up"
	})
}

// measure measures a path in all conditions over all carriers, and adds to the results.
func (c carriers) measure(t *testing.T, p path, results map[string]map[string][]float64) {
	t.Helper()
	for _, link := range conditions[:min(*links, len(conditions))] {
		for _, fault := range link.faults {
			c.fault(t, fault[0], fault[1:]...)
		}
		for _, kind := range carrierKinds {
			c.use(t, kind)
			add(results, rowOf(kind, link), p.measure(t, c.clusters))
		}
		c.fault(t, "clear")
	}
	c.use(t, "UDP")
}

func rowOf(kind string, link condition) string { return kind + ", " + link.name }

// add adds one measurement to the results.
func add(results map[string]map[string][]float64, name string, values map[string]float64) {
	if results[name] == nil {
		results[name] = map[string][]float64{}
	}
	for what, value := range values {
		results[name][what] = append(results[name][what], value)
	}
}

// carrierTable has the carriers side by side, and their ratios to UDP in the same condition.
func carrierTable(results map[string]map[string][]float64) string {
	var text strings.Builder
	for _, link := range conditions[:min(*links, len(conditions))] {
		names := make([]string, 0, len(carrierKinds))
		for _, kind := range carrierKinds {
			names = append(names, rowOf(kind, link))
		}
		fmt.Fprintf(
			&text, "\nPods on the gateways' nodes, %s; target: TLS and WebSocket ≥ 0.6 of UDP without loss, ≥ 0.5 with it\n%s", link.name,
			rows(names, results),
		)
		text.WriteString(ratios(names, names[0], results))
	}
	return text.String()
}
