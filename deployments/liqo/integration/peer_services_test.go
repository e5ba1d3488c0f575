// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAttackNM8: where a load balancer takes a port of every node, a peer gets none that serves the nodes.
func TestAttackNM8(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, refused = "web-rome-000000", "peers.services.refusedLoadBalancerPorts"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	on := func(kind string, ports ...int64) map[string]any {
		var all []any
		for _, port := range ports {
			all = append(all, map[string]any{"name": "p" + string(rune('a'+port%26)), "port": port})
		}
		return serviceOf(map[string]any{"type": kind, "ports": all})
	}
	for _, test := range []attempt{
		{"SSH", "Service", nil, nil, on("LoadBalancer", 22), refused},
		{"the API server", "Service", nil, nil, on("LoadBalancer", 6443), refused},
		{"kubelets", "Service", nil, nil, on("LoadBalancer", 10250), refused},
		{"etcd", "Service", nil, nil, on("LoadBalancer", 2379), refused},
		{"the tunnel of Liqo", "Service", nil, nil, on("LoadBalancer", 5871), refused},
		{"a node port", "Service", nil, nil, on("LoadBalancer", 31000), refused},
		{"one of two", "Service", nil, nil, on("LoadBalancer", 80, 6443), refused},
		{"a web server", "Service", nil, nil, on("LoadBalancer", 80, 443), ""},
		{"a database", "Service", nil, nil, on("LoadBalancer", 5432), ""},
		{"such a port inside the cluster", "Service", nil, nil, on("ClusterIP", 6443), ""},
	} {
		test.check(ctx, t, c, remote)
	}
	kept := peerObject(remote, "Service", nil, nil, on("LoadBalancer", 80))
	if err := c.Create(ctx, kept); err != nil {
		t.Fatal(err)
	}
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ports":[{"port":6443}]}}`))
	if err := c.Patch(ctx, kept.DeepCopy(), change, client.DryRunAll); err == nil {
		t.Error("an update to the port of the API server is admitted")
	}
}

// TestAttackNL2: a Service of a peer chooses neither its address nor a network that publishes it, and an Ingress gives no orders to k8gb.
func TestAttackNL2(t *testing.T) {
	ctx, admin, root := installed(t, "peers.ingresses.hosts={shop.example.org}")
	const remote = "web-rome-000000"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-objects", func() error {
		return c.Create(ctx, peerObject(remote, "ConfigMap", keys{"grafana_dashboard": "1"}, nil, nil), client.DryRunAll)
	})
	for _, test := range []attempt{
		{
			"a class", "Service", nil, nil, serviceOf(map[string]any{"type": "LoadBalancer", "loadBalancerClass": "mesh.example/vpn"}),
			"peers.services.loadBalancerClasses",
		},
		{"an address", "Service", nil, nil, serviceOf(map[string]any{"clusterIP": "10.0.0.10"}), "clusterIP"},
		{"an address, twice", "Service", nil, nil, serviceOf(map[string]any{"clusterIP": "10.0.0.10", "clusterIPs": []any{"10.0.0.10"}}), "clusterIP"},
		{"k8gb", "Ingress", nil, keys{"k8gb.io/strategy": "roundRobin"}, ingressOf("shop.example.org", "/"), "peers.metadata.ingresses"},
		{"no address", "Service", nil, nil, serviceOf(nil), ""},
		{"no address at all", "Service", nil, nil, serviceOf(map[string]any{"clusterIP": "None"}), ""},
		{"an assigned address and port", "Service", nil, nil, serviceOf(map[string]any{"type": "LoadBalancer"}), ""},
	} {
		test.check(ctx, t, c, remote)
	}
	service := peerObject(remote, "Service", nil, nil, serviceOf(nil))
	if err := c.Create(ctx, service); err != nil {
		t.Fatal(err)
	}
	service.SetLabels(keys{"a": "b"})
	if err := c.Update(ctx, service, client.DryRunAll); err != nil { // with the address that Kubernetes assigned
		t.Errorf("an update of the whole Service: %v", err)
	}
}
