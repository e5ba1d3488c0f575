// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
)

// streaming has the gateways of all clusters accept streams until the test ends.
func streaming(t *testing.T) {
	t.Helper()
	set := func(value string) {
		values := map[*env.Cluster]string{}
		for _, c := range clusters.Clusters {
			values[c] = value
		}
		install(t, values)
	}
	set("gateway.config.streamPort=443")
	t.Cleanup(func() { set("gateway.config.streamPort=0") })
}

// withoutUDP closes UDP between pairs of clusters until the test ends, and waits until their tunnels go over TLS.
func withoutUDP(t *testing.T, all [][2]*env.Cluster, lanes string) {
	t.Helper()
	for _, pair := range all {
		clusters.Do(t, "fault", "allow", pair[0].Name, pair[1].Name, "tcp/1-65535", "icmp")
	}
	t.Cleanup(func() {
		for _, pair := range all {
			clusters.Do(t, "fault", "heal", pair[0].Name, pair[1].Name)
		}
	})
	for _, pair := range all {
		env.Eventually(t, env.Hang, "the tunnel from "+pair[0].Name+" to "+pair[1].Name+" goes over TLS", func() (string, bool) {
			view, err := networks.See(pair[0], pair[1])
			return fmt.Sprint(view.Carrier, " ", view.Lanes, " ", err), err == nil && view.Carrier == network.CarrierTLS && view.Lanes == lanes
		})
	}
}

// lanesOverTLS: where UDP does not pass, traffic leaves a failed lane as fast as over UDP.
func lanesOverTLS(t *testing.T) {
	streaming(t)
	withoutUDP(t, pairs(), "lane 0, 1 up")
	traffic := startFlows(t)
	status := followStatus(t)
	var table []outage
	defer func() { printOutages(table) }()
	for _, f := range gatewayFaults(2) {
		f.name = "over TLS: " + f.name
		t.Run(f.name, func(t *testing.T) { table = append(table, f.inject(t, 2, traffic, status)) })
	}
}

// behindOneNAT: two clusters with one outside address are both peers of a third one, over UDP and over TLS, and their tunnels follow a router that changes all.
func behindOneNAT(t *testing.T) {
	streaming(t)
	clusters.Do(t, "nat", "add", alpha.Name, gamma.Name)
	t.Cleanup(func() { clusters.Do(t, "nat", "remove", alpha.Name) })
	both := [][2]*env.Cluster{{alpha, beta}, {gamma, beta}}
	check := func(what string) {
		t.Helper()
		for _, pair := range both {
			clusters.Measure(what+": "+pair[0].Name+", until pods answer (target 10 s)", "%.1f s", answered(t, pair[0], pair[1]).Seconds())
		}
		sample(t, alpha, beta)
		sample(t, gamma, beta)
	}
	check("two clusters behind one NAT")
	clusters.Do(t, "nat", "rebind", alpha.Name, "--new-address")
	check("two clusters behind one NAT, another address")
	withoutUDP(t, both, "lane 0 up")
	clusters.Do(t, "nat", "rebind", alpha.Name, "--new-address")
	check("two clusters behind one NAT, over TLS, another address")
	answered(t, alpha, gamma) // behind the same router they reach each other
}

// hairpin: a NAT router forwards the port of the gateway behind it, and the gateway is known by the address of the router only. So it is reached from outside,
// and by a cluster behind the same router, whose packets turn round in the router.
func hairpin(t *testing.T) {
	r := clusters.Playground("nat", "add", alpha.Name, gamma.Name)
	_, address, _ := strings.Cut(strings.TrimSpace(r.Out), " behind ")
	if r.Code != 0 || address == "" {
		t.Fatal(r)
	}
	t.Cleanup(func() { clusters.Do(t, "nat", "remove", alpha.Name) })
	inside := see(t, beta, alpha).Spec.Lanes[0].Carriers[0]
	clusters.Do(t, "nat", "forward", alpha.Name, fmt.Sprintf("udp/%d", inside.Port), "--to", fmt.Sprintf("%s:%d", inside.Addresses[0], inside.Port))
	install(t, map[*env.Cluster]string{
		alpha: "gateway.config.addressOverride=" + address, beta: "gateway.service.type=ClusterIP", gamma: "gateway.service.type=ClusterIP",
	})
	t.Cleanup(func() {
		install(t, map[*env.Cluster]string{
			alpha: "gateway.config.addressOverride=", beta: "gateway.service.type=LoadBalancer", gamma: "gateway.service.type=LoadBalancer",
		})
		answered(t, beta, alpha)
		answered(t, gamma, alpha)
	})
	for _, other := range []*env.Cluster{beta, gamma} { // alpha cannot dial them
		carriers(t, other, alpha, "the router's address", func(at []network.Carrier) bool {
			return len(at) == 1 && len(at[0].Addresses) == 1 && at[0].Addresses[0] == address && at[0].Port == inside.Port
		})
		carriers(t, alpha, other, "no carrier", func(at []network.Carrier) bool { return len(at) == 0 })
	}
	for _, c := range clusters.Clusters { // existing tunnels would stay
		c.Kubectl(t, "-n", "liqo", "delete", "pod", "-l", gatewayLabel+"="+gatewayActive)
	}
	for _, other := range []*env.Cluster{beta, gamma} {
		clusters.Measure(
			"gateway behind a forwarded port of a NAT router, new gateways, until pods of "+other.Name+" have answers", "%.1f s",
			answered(t, other, alpha).Seconds(),
		)
		sample(t, other, alpha)
	}
}

// entrance is one more address of beta's gateway.
const entrance = `
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: liqo}
spec:
  type: LoadBalancer
  selector: {net.liqo.io/gateway: active}
  ports: [{name: tunnel, port: 5871, protocol: UDP}]
`

// nameOfGateway: a gateway that is known by its name only, and whose address changes, is found again. Its peer cannot be dialled.
func nameOfGateway(t *testing.T) {
	const name = "gateway.beta.example"
	addresses := map[string]string{"first": "", "second": ""}
	for entry := range addresses {
		beta.Apply(t, fmt.Sprintf(entrance, entry))
		t.Cleanup(func() { beta.Kubectl(t, "-n", "liqo", "delete", "service", entry, "--ignore-not-found") })
		env.Eventually(t, env.Hang, "the Service "+entry+" has an address", func() (string, bool) {
			addresses[entry] = beta.Kubectl(t, "-n", "liqo", "get", "service", entry, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
			return "", addresses[entry] != ""
		})
	}
	named(t, alpha, name, addresses["first"])
	t.Cleanup(func() { named(t, alpha, name, "") })
	install(t, map[*env.Cluster]string{alpha: "gateway.service.type=ClusterIP", beta: "gateway.config.addressOverride=" + name})
	t.Cleanup(func() {
		install(t, map[*env.Cluster]string{alpha: "gateway.service.type=LoadBalancer", beta: "gateway.config.addressOverride="})
		answered(t, alpha, beta)
	})
	carriers(t, alpha, beta, "its name", func(at []network.Carrier) bool {
		return len(at) == 1 && len(at[0].Addresses) == 1 && at[0].Addresses[0] == name
	})
	carriers(t, beta, alpha, "no carrier", func(at []network.Carrier) bool { return len(at) == 0 })
	for _, c := range []*env.Cluster{alpha, beta} { // existing tunnels would stay
		c.Kubectl(t, "-n", "liqo", "delete", "pod", "-l", gatewayLabel+"="+gatewayActive)
	}
	answered(t, alpha, beta)
	named(t, alpha, name, addresses["second"])
	beta.Kubectl(t, "-n", "liqo", "delete", "service", "first")
	clusters.Measure("address behind the name of a gateway changed, until pods answer (target 10 s)", "%.1f s", answered(t, alpha, beta).Seconds())
	sample(t, alpha, beta)
}

// named gives a name an address in the DNS of a cluster, or none.
func named(t *testing.T, c *env.Cluster, name, address string) {
	t.Helper()
	const start, end = "    hosts {\n", "        fallthrough\n    }\n"
	ctx := context.Background() // it is restored after the test
	var config corev1.ConfigMap
	if err := c.API.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &config); err != nil {
		t.Fatal(err)
	}
	file := config.Data["Corefile"]
	if before, rest, found := strings.Cut(file, start); found {
		_, after, _ := strings.Cut(rest, end)
		file = before + after
	}
	if address != "" {
		file = strings.Replace(file, "    kubernetes cluster.local", start+"        "+address+" "+name+"\n"+end+"    kubernetes cluster.local", 1)
	}
	config.Data["Corefile"] = file
	if err := c.API.Update(ctx, &config); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "-n", "kube-system", "rollout", "restart", "deployment/coredns")
	c.Kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
}
