// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// test/network tests how the network works. Here it is one part of a peering, which comes and goes with it.

// networkConfigs are the network configurations in the cluster, tunnels its tunnel endpoints.
func networkConfigs(c *env.Cluster) (all network.NetworkConfigList, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = c.API.List(ctx, &all)
	return all, err
}

func tunnels(c *env.Cluster) (all network.TunnelEndpointList, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = c.API.List(ctx, &all)
	return all, err
}

// networkWorkloads wants gateways and agents to run, or not to be there.
func networkWorkloads(t *testing.T, c *env.Cluster, want bool) {
	t.Helper()
	all := []string{"deployments.apps liqo/liqo-gateway", "daemonsets.apps liqo/liqo-route", "services liqo/liqo-gateway"}
	env.Eventually(t, env.Hang, fmt.Sprintf("gateways and agents are in %s: %t", c.Name, want), func() (string, bool) {
		var there []string
		for _, one := range all {
			kind, name, _ := strings.Cut(one, " ")
			namespace, name, _ := strings.Cut(name, "/")
			result := c.TryKubectl("", "-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "name")
			if result.Code != 0 {
				return result.String(), false
			}
			if strings.TrimSpace(result.Out) != "" {
				there = append(there, one)
			}
		}
		pods := c.TryKubectl("", "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/component in (gateway,route)", "-o", "name")
		seen := fmt.Sprintf("%s; pods %s", strings.Join(there, ", "), strings.Fields(pods.Out))
		running := len(strings.Fields(pods.Out)) > 0
		if want {
			return seen, len(there) == len(all) && running
		}
		return seen, pods.Code == 0 && len(there) == 0 && !running
	})
	if !want {
		return
	}
	nodes := strings.Fields(c.Kubectl(t, "get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", "name"))
	env.Eventually(t, env.Hang, "an agent is ready on each node of "+c.Name, func() (string, bool) {
		ready := c.Kubectl(t, "-n", "liqo", "get", "daemonset", "liqo-route", "-o", "jsonpath={.status.numberReady}")
		return fmt.Sprintf("%s of %v", ready, nodes), ready == fmt.Sprint(len(nodes))
	})
}

// networkGone waits until no network configuration and no tunnel is left.
func networkGone(t *testing.T, c *env.Cluster) {
	t.Helper()
	env.Eventually(t, env.Hang, "no network configuration and no tunnel is left in "+c.Name, func() (string, bool) {
		configs, err := networkConfigs(c)
		if err != nil {
			return err.Error(), false
		}
		agreed, err := tunnels(c)
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d configurations, %d tunnels", len(configs.Items), len(agreed.Items)), len(configs.Items)+len(agreed.Items) == 0
	})
}

// gatewayAway: without a network the virtual node is not Ready and its condition gives the reason; it recovers without help.
func gatewayAway(t *testing.T) {
	scale := func(replicas string) {
		milan.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas="+replicas)
	}
	scale("0")
	defer scale("1") // the default of the chart
	env.Eventually(t, env.Hang, "Kubernetes has taken milan's gateway away", func() (string, bool) {
		result := milan.TryKubectl("", "-n", "liqo", "get", "pods", "-l", labels.Gateway+"="+labels.GatewayActive, "-o", "name")
		return result.String(), result.Code == 0 && strings.TrimSpace(result.Out) == ""
	})
	took := env.Eventually(t, env.Hang, "the virtual node is not Ready without a gateway", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		status, why := env.Readiness(node)
		down := slices.ContainsFunc(node.Status.Conditions, func(one corev1.NodeCondition) bool {
			return one.Type == corev1.NodeNetworkUnavailable && one.Status == corev1.ConditionTrue && one.Message != ""
		})
		return fmt.Sprint(status, " ", why), status == corev1.ConditionFalse && down
	})
	clusters.Measure("provider's gateway away to node NotReady", "%.1f s", took.Seconds())
	env.Eventually(t, env.Hang, "rome reports what is wrong with the network", func() (string, bool) {
		have := env.PeeringCondition(rome.Foreign(t, milan), discovery.NetworkStatus)
		return fmt.Sprint(have.Status, " ", have.Message), have.Status == discovery.StatusError && have.Message != ""
	})
	scale("1")
	clusters.Measure("provider's gateway back to node Ready", "%.1f s", rome.NodeReady(t, milan).Seconds())
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
}

// externalNetwork: where the network is not Liqo's, peering works without it, nothing of it runs, and it can be switched on again.
func externalNetwork(t *testing.T) {
	internal := func(on bool) {
		for _, c := range both() {
			c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", fmt.Sprintf("networking.internal=%t", on))
			networkWorkloads(t, c, on)
		}
	}
	internal(false)
	rome.Peer(t, milan)
	rome.WantColumns(t, milan, "Established None External Established")
	milan.WantColumns(t, rome, "None Established External Established")
	for _, c := range both() {
		networkGone(t, c)
	}
	rome.Liqoctl(t, "status", "peer", "milan")
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	for _, c := range both() {
		env.Settled(t, c)
	}
	internal(true)
	for _, c := range both() {
		env.Healthy(t, c)
	}
	rome.Peer(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	for _, c := range both() {
		env.Settled(t, c)
	}
}

// showsNetworks: each side reports under which networks it reaches the other one.
func showsNetworks(t *testing.T) {
	t.Helper()
	for _, pair := range [][2]*env.Cluster{{rome, milan}, {milan, rome}} {
		env.Eventually(t, env.Hang, pair[0].Name+" shows under which networks it reaches "+pair[1].Name, func() (string, bool) {
			result := pair[0].TryLiqoctl("status", "peer", pair[1].Name)
			return result.String(), result.Code == 0 && strings.Contains(result.Out, "Addresses: the peer's pods are reached as ")
		})
	}
}
