// SPDX-License-Identifier: Apache-2.0

// Package network tests the network between three real clusters that all have the same pod network: which pods and nodes reach which, and
// under which addresses; what an observer between the clusters sees; what a hostile peer can reach; how long faults interrupt traffic; and
// what an uninstallation leaves. Durations are recorded with their targets; only an outage fails the tests (see outageBound).
//
// It knows what package env knows. It brings the playground's scenario three-overlap up and takes it down. Each test stands alone: it brings
// the clusters to the state it needs, which costs little if the test before left them so. Run all of it with: make test-long SUITE=network,
// or one test or fault: go test ./test/network -v -run 'TestFaultsWithOneGateway/keys_rotated'
package network

import (
	"flag"
	"fmt"
	"strconv"
	"testing"
	"time"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

var (
	keep               = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long               = flag.Bool("long", false, "all faults, of which some take minutes")
	clusters           *env.Env
	alpha, beta, gamma *env.Cluster

	// uncertain is set by a failed test: the next one then repairs whatever may be left of it.
	uncertain bool
)

func TestMain(m *testing.M) {
	env.Main(m, "three-overlap", keep, func(e *env.Env) error {
		clusters, alpha, beta, gamma = e, e.Clusters[0], e.Clusters[1], e.Clusters[2]
		return nil
	})
}

// The tests in the order in which a user meets them.

func TestPeer(t *testing.T)                    { step(t, 1, peer) }
func TestReachability(t *testing.T)            { step(t, 1, matrix) }
func TestServices(t *testing.T)                { step(t, 1, services) }
func TestLiqoctlTest(t *testing.T)             { step(t, 1, liqoctlTest) }
func TestMappedAddresses(t *testing.T)         { step(t, 1, mappedAddresses) }
func TestNothingInTheClear(t *testing.T)       { step(t, 1, nothingInTheClear) }
func TestSmallerPath(t *testing.T)             { step(t, 1, smallerPath) }
func TestHostilePeer(t *testing.T)             { step(t, 1, hostilePeer) }
func TestAttackM4(t *testing.T)                { step(t, 1, restrictedTraffic) }
func TestAttackNC1(t *testing.T)               { step(t, 1, claimedAddresses) }
func TestAttackNC1Nodes(t *testing.T)          { step(t, 1, reachedByNodes) }
func TestNodePort(t *testing.T)                { step(t, 1, nodePort) }
func TestNodesWithoutPodNetworks(t *testing.T) { step(t, 1, nodesWithoutPodNetworks) }
func TestFaultsWithOneGateway(t *testing.T)    { step(t, 1, func(t *testing.T) { faults(t, 1) }) }
func TestFaultsWithTwoGateways(t *testing.T)   { step(t, 2, func(t *testing.T) { faults(t, 2) }) }

// Tests that take minutes.

func TestBehindOneNAT(t *testing.T)        { onlyLong(t); step(t, 1, behindOneNAT) }
func TestHairpin(t *testing.T)             { onlyLong(t); step(t, 1, hairpin) }
func TestNameOfGateway(t *testing.T)       { onlyLong(t); step(t, 1, nameOfGateway) }
func TestMappedByTwoGateways(t *testing.T) { onlyLong(t); step(t, 2, mappedAddresses) }
func TestTwoGatewaysOverTLS(t *testing.T)  { onlyLong(t); step(t, 2, lanesOverTLS) }

func onlyLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("SKIPPED: it takes minutes: -long")
	}
}

// TestNothingIsLeft is the last one: it leaves the clusters as they were before the installation.
func TestNothingIsLeft(t *testing.T) {
	defer clusters.Step(t)()
	uninstall(t)
	before := snapshots(t)
	peered(t, 2)
	unpeer(t)
	nothingLeft(t, before)
	uninstall(t)
	nothingLeft(t, before)
}

// step runs a test on peered clusters with a number of gateways each. If it fails it leaves what the clusters looked like.
func step(t *testing.T, lanes int, run func(*testing.T)) {
	t.Helper()
	defer clusters.Step(t)()
	repair(t)
	t.Cleanup(func() { uncertain = uncertain || t.Failed() })
	peered(t, lanes)
	start := time.Now()
	run(t)
	clusters.Measure(t.Name(), "%.1f s", time.Since(start).Seconds())
}

// repair takes back what a failed test may have left: links that are cut, nodes that are off or take no pods, other Helm values.
func repair(t *testing.T) {
	t.Helper()
	if !uncertain {
		return
	}
	for _, pair := range pairs() {
		t.Log(clusters.Playground("fault", "heal", pair[0].Name, pair[1].Name)) // not every link is cut
	}
	for _, c := range clusters.Clusters {
		for _, node := range c.Nodes {
			t.Log(clusters.Playground("node", "start", c.Name, node.Name)) // not every node is off
			c.Kubectl(t, "uncordon", node.Name)
		}
		installLanes(t, c, 1)
	}
	uncertain = false
}

// pairs are the directions in which clusters are peered: consumer, then provider. The network is the same in both.
func pairs() [][2]*env.Cluster {
	return [][2]*env.Cluster{{alpha, beta}, {alpha, gamma}, {gamma, beta}}
}

// directions are all ordered pairs of peered clusters.
func directions() (all [][2]*env.Cluster) {
	for _, pair := range pairs() {
		all = append(all, pair, [2]*env.Cluster{pair[1], pair[0]})
	}
	return all
}

// peered has servers on every node, Liqo with a number of gateways in every cluster, and a network between each two of them.
func peered(t *testing.T, lanes int) {
	t.Helper()
	for _, c := range clusters.Clusters {
		traffic.Serve(t, c)
		if all, err := gateways(c); err != nil || len(all) != lanes {
			installLanes(t, c, lanes)
		}
	}
	for _, pair := range pairs() {
		if condition, err := networks.Condition(pair[0], pair[1]); err != nil || condition.Status != discovery.StatusEstablished {
			pair[0].Peer(t, pair[1])
		}
	}
	for _, pair := range directions() {
		env.Eventually(t, env.Hang, fmt.Sprintf("%s knows %d lanes to %s", pair[0].Name, lanes, pair[1].Name), func() (string, bool) {
			view, err := networks.See(pair[0], pair[1])
			return fmt.Sprintf("%d lanes, %v", len(view.Spec.Lanes), err), err == nil && len(view.Spec.Lanes) == lanes
		})
		established(t, pair[0], pair[1])
	}
}

// installLanes installs Liqo with a number of gateways, or changes an installation to have that many.
func installLanes(t *testing.T, c *env.Cluster, lanes int) {
	t.Helper()
	// Gateways may move, and a second gateway needs a second node. There is no taint to take the second time.
	_ = c.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=true", "--enable-ha="+strconv.FormatBool(lanes > 1))
	env.Eventually(t, env.Hang, fmt.Sprintf("%d gateways run in %s", lanes, c.Name), func() (string, bool) {
		all, err := gateways(c)
		return fmt.Sprintf("%d gateways, %v", len(all), err), err == nil && len(all) == lanes
	})
}

// peer ends every peering and peers again, and measures how long the network takes.
func peer(t *testing.T) {
	unpeer(t)
	for _, pair := range pairs() {
		start := time.Now()
		pair[0].Peer(t, pair[1])
		established(t, pair[0], pair[1])
		clusters.Measure(fmt.Sprintf("%s peers with %s: command to network Established", pair[0].Name, pair[1].Name), "%.1f s", time.Since(start).Seconds())
		established(t, pair[1], pair[0])
	}
}

func established(t *testing.T, here, there *env.Cluster) {
	t.Helper()
	env.Eventually(t, env.Hang, here.Name+" reports the network to "+there.Name+" Established", func() (string, bool) {
		condition, err := networks.Condition(here, there)
		return fmt.Sprintf("%s %s %s (%v)", condition.Status, condition.Reason, condition.Message, err), condition.Status == discovery.StatusEstablished
	})
}

// unpeer ends every peering, and waits until neither end knows of it.
func unpeer(t *testing.T) {
	t.Helper()
	for _, pair := range pairs() {
		if installed(pair[0]) && pair[0].Foreign(t, pair[1]) != nil {
			pair[0].Liqoctl(t, "unpeer", "out-of-band", pair[1].Name)
		}
	}
	for _, pair := range directions() {
		env.Eventually(t, env.Hang, pair[0].Name+" has no ForeignCluster of "+pair[1].Name, func() (string, bool) {
			return pair[0].Columns(t, pair[1]), !installed(pair[0]) || pair[0].Foreign(t, pair[1]) == nil
		})
	}
	for _, c := range clusters.Clusters {
		env.Settled(t, c)
	}
}

// installed reports whether a cluster has Liqo.
func installed(c *env.Cluster) bool {
	return c.TryKubectl("", "get", "namespace", "liqo").Code == 0
}

// uninstall removes Liqo and the servers, if they are there.
func uninstall(t *testing.T) {
	t.Helper()
	unpeer(t)
	for _, c := range clusters.Clusters {
		c.Uninstalled(t)
		c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--ignore-not-found", "--timeout=60s")
	}
}
