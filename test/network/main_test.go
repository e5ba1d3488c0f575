// SPDX-License-Identifier: Apache-2.0

// Package network tests the network between three real clusters that all have the same pod network: which pods and nodes reach which, and
// under which addresses; what an observer between the clusters sees; what a hostile peer can reach; how long faults interrupt traffic; and
// what an uninstallation leaves. Durations are recorded with their targets; only an outage fails the tests (see outageBound).
//
// It knows what package env knows. It brings the playground's scenario three-overlap up and takes it down. Run it with: make e2e,
// and with the long list of faults: go test ./test/network -v -long
package network

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "all faults, of which some take minutes")
	only = flag.String("steps", "", "comma separated names of steps and faults to run, for work on these tests; empty: all")

	clusters           *env.Env
	alpha, beta, gamma *env.Cluster
)

func TestMain(m *testing.M) {
	env.Main(m, "three-overlap", keep, func(e *env.Env) error {
		clusters, alpha, beta, gamma = e, e.Clusters[0], e.Clusters[1], e.Clusters[2]
		return nil
	})
}

// chosen returns true if the flag -steps selects a step or fault.
func chosen(name string) bool {
	if *only == "" {
		return true
	}
	for part := range strings.SplitSeq(*only, ",") {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// TestNetwork uses the network in the order in which a user meets it. Each step starts from the state that the previous one left, so a
// failed step ends the test; but a failed fault does not prevent the next one.
func TestNetwork(t *testing.T) {
	before := snapshots(t)
	steps := []struct {
		name   string
		always bool // needed by the others
		run    func(*testing.T)
	}{
		{"install and peer", true, installAndPeer},
		{"reachability", false, matrix},
		{"services", false, services},
		{"liqoctl test network", false, liqoctlTest},
		{"mapped addresses", false, mappedAddresses},
		{"nothing in the clear", false, nothingInTheClear},
		{"smaller path", false, smallerPath},
		{"hostile peer", false, hostilePeer},
		{"NodePort", false, nodePort},
		{"nodes without pod networks", false, nodesWithoutPodNetworks},
		{"faults with one gateway", false, func(t *testing.T) { faults(t, 1) }},
		{"faults with two gateways", false, func(t *testing.T) { secondGateways(t); faults(t, 2) }},
		{"nothing is left after unpeering", true, func(t *testing.T) { unpeer(t); nothingLeft(t, before) }},
		{"nothing is left after uninstallation", true, func(t *testing.T) { uninstall(t); nothingLeft(t, before) }},
	}
	for _, step := range steps {
		if !step.always && !chosen(step.name) {
			continue
		}
		start := time.Now()
		if !t.Run(step.name, step.run) && step.name != "faults with one gateway" {
			for _, c := range clusters.Clusters {
				c.Show(t)
			}
			t.FailNow()
		}
		clusters.Measure("step "+step.name, "%.1f s", time.Since(start).Seconds())
	}
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

func installAndPeer(t *testing.T) {
	for _, c := range clusters.Clusters {
		// Gateways may move, and a second gateway needs a second node.
		_ = c.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
		c.Serve(t)
		c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=true")
	}
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
		condition, err := here.Networking(there)
		return fmt.Sprintf("%s %s %s (%v)", condition.Status, condition.Reason, condition.Message, err), condition.Status == "Established"
	})
}

// secondGateways gives every cluster two lanes.
func secondGateways(t *testing.T) {
	for _, c := range clusters.Clusters {
		c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=true", "--enable-ha")
	}
	for _, c := range clusters.Clusters {
		env.Eventually(t, env.Hang, "two gateways run in "+c.Name, func() (string, bool) {
			all, err := gateways(c)
			return fmt.Sprintf("%d gateways, %v", len(all), err), len(all) == 2
		})
	}
	for _, pair := range directions() {
		env.Eventually(t, env.Hang, pair[0].Name+" knows two lanes to "+pair[1].Name, func() (string, bool) {
			view, err := pair[0].See(pair[1])
			return fmt.Sprintf("%d lanes, %v", len(view.Spec.Lanes), err), len(view.Spec.Lanes) == 2
		})
		established(t, pair[0], pair[1])
	}
}

func unpeer(t *testing.T) {
	for _, pair := range pairs() {
		pair[0].Liqoctl(t, "unpeer", "out-of-band", pair[1].Name)
	}
}

func uninstall(t *testing.T) {
	for _, c := range clusters.Clusters {
		c.Liqoctl(t, "uninstall", "--purge")
		c.Kubectl(t, "delete", "namespace", env.Namespace, "--timeout=60s")
	}
}
