// SPDX-License-Identifier: Apache-2.0

// Package network runs the network between three real clusters that all have the same pod network: who reaches whom and as whom, what
// is seen on the way, what a hostile peer gets, how long traffic stands still when something fails, and what is left in the end.
//
// It knows what package env knows. It brings the playground's scenario three-overlap up and takes it away. Run it with: make e2e,
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
	env.Main(m, "three-overlap", keep, func(b *env.Env) error {
		clusters, alpha, beta, gamma = b, b.Clusters[0], b.Clusters[1], b.Clusters[2]
		return nil
	})
}

// chosen tells whether a step is to be run.
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

// TestNetwork is the life of the network in the order a user meets it. Each step starts from what the one before left, so a step
// that fails ends the test; but a fault that does not heal as fast as it should does not hide the next one.
func TestNetwork(t *testing.T) {
	before := snapshots(t)
	steps := []struct {
		name   string
		always bool // needed by the others
		run    func(*testing.T)
	}{
		{"install and peer", true, installAndPeer},
		{"who reaches whom", false, matrix},
		{"services", false, services},
		{"test of the users", false, usersTest},
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
		began := time.Now()
		if !t.Run(step.name, step.run) && step.name != "faults with one gateway" {
			for _, c := range clusters.Clusters {
				c.Show(t)
			}
			t.FailNow()
		}
		clusters.Measure("step "+step.name, "%.1f s", time.Since(began).Seconds())
	}
}

// pairs are the directions in which clusters are peered: consumer, then provider. The network is the same in both.
func pairs() [][2]*env.Cluster {
	return [][2]*env.Cluster{{alpha, beta}, {alpha, gamma}, {gamma, beta}}
}

// directions are all ordered pairs.
func directions() (all [][2]*env.Cluster) {
	for _, pair := range pairs() {
		all = append(all, pair, [2]*env.Cluster{pair[1], pair[0]})
	}
	return all
}

func installAndPeer(t *testing.T) {
	for _, c := range clusters.Clusters {
		// Gateways may move, and second ones have a node to be on.
		_ = c.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
		c.Serve(t)
		c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=true")
	}
	for _, pair := range pairs() {
		began := time.Now()
		pair[0].Peer(t, pair[1])
		established(t, pair[0], pair[1], 60*time.Second)
		clusters.Measure(fmt.Sprintf("%s peers with %s: command to network Established", pair[0].Name, pair[1].Name), "%.1f s", time.Since(began).Seconds())
		established(t, pair[1], pair[0], 20*time.Second)
	}
}

func established(t *testing.T, here, there *env.Cluster, within time.Duration) {
	t.Helper()
	env.Eventually(t, within, here.Name+" says that the network to "+there.Name+" is Established", func() (string, bool) {
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
		env.Eventually(t, 60*time.Second, "two gateways run in "+c.Name, func() (string, bool) {
			all, err := gateways(c)
			return fmt.Sprintf("%d gateways, %v", len(all), err), len(all) == 2
		})
	}
	for _, pair := range directions() {
		env.Eventually(t, 60*time.Second, pair[0].Name+" knows two lanes to "+pair[1].Name, func() (string, bool) {
			view, err := pair[0].See(pair[1])
			return fmt.Sprintf("%d lanes, %v", len(view.Spec.Lanes), err), len(view.Spec.Lanes) == 2
		})
		established(t, pair[0], pair[1], 60*time.Second)
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
