// SPDX-License-Identifier: Apache-2.0

// Package settingstest has an example of a cluster for tests.
package settingstest

import (
	"net/netip"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// Example is a cluster with two nodes, all addons, a pool and hollow nodes.
func Example() settings.Config {
	return settings.Config{
		Cluster: "rome", Kubeconfig: "/k", PodCIDR: "10.200.0.0/16", ServiceCIDR: "10.90.0.0/12", DNSIP: "10.80.0.10",
		ControlPlaneEndpoint: "10.210.1.10:6443", KubernetesVersion: "v1.36.3", Nodes: Nodes(),
		LoadBalancerPool: "10.210.1.200-10.210.1.250",
		Images:           settings.Images{CoreDNS: "playground.local/coredns:1.15.0", MetricsServer: "playground.local/metrics-server:0.9.0"},
		Hollow:           []settings.Hollow{{Kind: "kwok", Prefix: "rome-hollow", Count: 2, Capacity: map[string]string{"cpu": "32"}}},
	}
}

// Nodes are two real nodes.
func Nodes() map[string]settings.Node {
	return map[string]settings.Node{
		"rome-control-plane": {Netns: "/run/netns/a", Interface: "eth0", Address: netip.MustParseAddr("10.210.1.10"), Root: "/roots/a"},
		"rome-worker":        {Netns: "/run/netns/b", Interface: "eth0", Address: netip.MustParseAddr("10.210.1.11"), Root: "/roots/b"},
	}
}
