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
)

// How the network works is the matter of test/network. Here it is one part of a peering among others, which comes and goes with it.

// told are the network configurations in the cluster, agreed its tunnel endpoints.
func (c *cluster) told() (all network.NetworkConfigList, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = c.api.List(ctx, &all)
	return all, err
}

func (c *cluster) agreed() (all network.TunnelEndpointList, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = c.api.List(ctx, &all)
	return all, err
}

// networkWorkloads wants gateways and agents to run, or not to be there.
func (c *cluster) networkWorkloads(t *testing.T, want bool) {
	t.Helper()
	all := []string{"deployments.apps liqo/liqo-gateway", "daemonsets.apps liqo/liqo-route", "services liqo/liqo-gateway"}
	eventually(t, 60*time.Second, fmt.Sprintf("gateways and agents are in %s: %t", c.Name, want), func() (string, bool) {
		var there []string
		for _, one := range all {
			kind, name, _ := strings.Cut(one, " ")
			namespace, name, _ := strings.Cut(name, "/")
			said := c.tryKubectl("", "-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "name")
			if said.code != 0 {
				return said.String(), false
			}
			if strings.TrimSpace(said.out) != "" {
				there = append(there, one)
			}
		}
		pods := c.tryKubectl("", "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/component in (gateway,route)", "-o", "name")
		seen := fmt.Sprintf("%s; pods %s", strings.Join(there, ", "), strings.Fields(pods.out))
		running := len(strings.Fields(pods.out)) > 0
		if want {
			return seen, len(there) == len(all) && running
		}
		return seen, pods.code == 0 && len(there) == 0 && !running
	})
	if !want {
		return
	}
	nodes := strings.Fields(c.kubectl(t, "get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", "name"))
	eventually(t, 30*time.Second, "an agent is ready on each node of "+c.Name, func() (string, bool) {
		ready := c.kubectl(t, "-n", "liqo", "get", "daemonset", "liqo-route", "-o", "jsonpath={.status.numberReady}")
		return fmt.Sprintf("%s of %v", ready, nodes), ready == fmt.Sprint(len(nodes))
	})
}

// networkGone wants nothing to be left of what clusters tell each other of their networks.
func networkGone(t *testing.T, c *cluster) {
	t.Helper()
	eventually(t, 10*time.Second, "no network configuration and no tunnel is left in "+c.Name, func() (string, bool) {
		told, err := c.told()
		if err != nil {
			return err.Error(), false
		}
		agreed, err := c.agreed()
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d configurations, %d tunnels", len(told.Items), len(agreed.Items)), len(told.Items)+len(agreed.Items) == 0
	})
}

// gatewayAway: without a network the virtual node is not Ready, and says why; nothing has to be done once the network is back.
func gatewayAway(t *testing.T) {
	scale := func(replicas string) {
		milan.kubectl(t, "-n", "liqo", "scale", "deployment/liqo-gateway", "--replicas="+replicas)
	}
	scale("0")
	defer scale("1") // what the chart says
	eventually(t, 2*time.Minute, "Kubernetes has taken milan's gateway away", func() (string, bool) {
		said := milan.tryKubectl("", "-n", "liqo", "get", "pods", "-l", labels.Gateway+"="+labels.GatewayActive, "-o", "name")
		return said.String(), said.code == 0 && strings.TrimSpace(said.out) == ""
	})
	took := eventually(t, 30*time.Second, "the virtual node is not Ready without a gateway", func() (string, bool) {
		node, err := rome.node(milan)
		if err != nil {
			return err.Error(), false
		}
		status, why := readiness(node)
		down := slices.ContainsFunc(node.Status.Conditions, func(one corev1.NodeCondition) bool {
			return one.Type == corev1.NodeNetworkUnavailable && one.Status == corev1.ConditionTrue && one.Message != ""
		})
		return fmt.Sprint(status, " ", why), status == corev1.ConditionFalse && down
	})
	measure("provider's gateway away to node NotReady", "%.1f s", took.Seconds())
	eventually(t, 10*time.Second, "rome says what is wrong with the network", func() (string, bool) {
		have := condition(rome.foreign(t, milan), discovery.NetworkStatus)
		return fmt.Sprint(have.Status, " ", have.Message), have.Status == discovery.StatusError && have.Message != ""
	})
	scale("1")
	measure("provider's gateway back to node Ready", "%.1f s", rome.nodeReady(t, milan, 60*time.Second).Seconds())
	rome.wantColumns(t, milan, "Established None Established Established")
	milan.wantColumns(t, rome, "None Established Established Established")
}

// externalNetwork: where the network is not Liqo's, peering works without it, nothing of it runs, and it can be switched on again.
func externalNetwork(t *testing.T) {
	internal := func(on bool) {
		for _, c := range []*cluster{rome, milan} {
			c.liqoctl(t, "install", "--cluster-name", c.Name, "--set", fmt.Sprintf("networking.internal=%t", on))
			c.networkWorkloads(t, on)
		}
	}
	internal(false)
	rome.peer(t, milan)
	rome.wantColumns(t, milan, "Established None External Established")
	milan.wantColumns(t, rome, "None Established External Established")
	for _, c := range []*cluster{rome, milan} {
		networkGone(t, c)
	}
	rome.liqoctl(t, "status", "peer", "milan")
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
	for _, c := range []*cluster{rome, milan} {
		settled(t, c)
	}
	internal(true)
	for _, c := range []*cluster{rome, milan} {
		healthy(t, c)
	}
	rome.peer(t, milan)
	rome.wantColumns(t, milan, "Established None Established Established")
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
	for _, c := range []*cluster{rome, milan} {
		settled(t, c)
	}
}
