// SPDX-License-Identifier: Apache-2.0

package network

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// state prints everything in the kernel of a node that Liqo may change.
const state = `ip -o link; ip -o addr; ip rule; ip route show table all; ip neigh show nud permanent; nft list tables
sysctl -a 2>/dev/null | grep -E '^net\.(ipv4\.(conf|ip_|fib_|neigh\.default|icmp|tcp_)|netfilter\.nf_conntrack_(max|tcp|udp))'`

var (
	// ofPods matches what changes with pods, and with load balancers of the playground.
	ofPods = regexp.MustCompile(`veth|nf_conntrack_count|lo:pool|local \S+ dev lo table local proto kernel scope host src 10\.210\.\d+\.2\d\d$`)
	// number matches the index of a link, which is arbitrary.
	number = regexp.MustCompile(`^\d+: `)
)

// snapshot returns the output of state in a node's network namespace, sorted and without the lines of pods.
func snapshot(t *testing.T, node *env.Node) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(node.Net().Run(t, "sh", "-c", state)) {
		if line = number.ReplaceAllString(strings.TrimSpace(line), ""); !ofPods.MatchString(line) {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// snapshots returns those of all nodes.
func snapshots(t *testing.T) map[*env.Node]string {
	all := map[*env.Node]string{}
	for _, c := range clusters.Clusters {
		for _, node := range c.Nodes {
			all[node] = snapshot(t, node)
		}
	}
	return all
}

// nothingLeft waits until the snapshot of every node is as before.
func nothingLeft(t *testing.T, before map[*env.Node]string) {
	for _, node := range slices.SortedFunc(maps.Keys(before), func(a, b *env.Node) int { return strings.Compare(a.Name, b.Name) }) {
		env.Eventually(t, env.Hang, node.Name+" is as it was before the installation", func() (string, bool) {
			difference := compare(before[node], snapshot(t, node))
			return difference, difference == ""
		})
	}
}

// compare lists the lines that only one of two texts has.
func compare(before, now string) string {
	var difference []string
	was, is := strings.Split(before, "\n"), strings.Split(now, "\n")
	for _, line := range is {
		if !slices.Contains(was, line) {
			difference = append(difference, "+ "+line)
		}
	}
	for _, line := range was {
		if !slices.Contains(is, line) {
			difference = append(difference, "- "+line)
		}
	}
	return strings.Join(difference, "\n            ")
}

// TestSnapshotSees creates on a node the kinds of objects that Liqo creates, and checks that the snapshot shows each of them.
func TestSnapshotSees(t *testing.T) {
	defer clusters.Step(t)()
	node := gamma.Nodes[0]
	before := snapshot(t, node)
	run := func(script string) { node.Net().Run(t, "sh", "-c", script) }
	for _, c := range []struct{ name, make, undo string }{
		{"link", "ip link add seen.vxlan type vxlan id 7 dstport 4800", "ip link del seen.vxlan"},
		{"address", "ip addr add 10.99.0.1/32 dev lo", "ip addr del 10.99.0.1/32 dev lo"},
		{"rule", "ip rule add pref 18960 to 10.99.0.0/16 lookup 18952", "ip rule del pref 18960"},
		{"route", "ip route add blackhole 10.99.0.0/16 table 18952 proto 98", "ip route del blackhole 10.99.0.0/16 table 18952"},
		{"table", "nft add table ip seen", "nft delete table ip seen"},
		{"setting", "sysctl -qw net.ipv4.conf.eth0.rp_filter=2", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0"},
	} {
		run(c.make)
		if compare(before, snapshot(t, node)) == "" {
			t.Errorf("the snapshot does not show a new %s", c.name)
		}
		run(c.undo)
	}
	if difference := compare(before, snapshot(t, node)); difference != "" {
		t.Errorf("the snapshot differs without a change:\n            %s", difference)
	}
}
