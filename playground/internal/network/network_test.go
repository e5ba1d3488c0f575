// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// TestForget: Forget removes what was added while the node was up, and keeps what the node was made with.
func TestForget(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it makes network namespaces, for which it must be root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatalf("%v; hack/bootstrap installs it", err)
	}
	at := func(name string) string { return path.Join(topology.NetNSDir, topology.Prefix+"test-"+name) }
	node := topology.Endpoint{Name: "node", NetNS: at("node"), Address: netip.MustParseAddr("10.210.9.10")}
	cluster := topology.Cluster{Cluster: scenario.Cluster{PodCIDR: netip.MustParsePrefix("10.200.0.0/16")}}
	if err := prepareDir(); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{node.NetNS, at("pod")} {
		made, err := create(ns, nodeSettings)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = made.Close()
			if err := remove(ns); err != nil {
				t.Error(err)
			}
			_ = removeDir()
		})
	}
	run := func(line string) string {
		t.Helper()
		line = "set -e; " + strings.ReplaceAll(line, "NODE", topology.NodeLink)
		var out []byte
		if err := Inside(node.NetNS, func() (err error) {
			out, err = exec.Command("/bin/sh", "-c", line).CombinedOutput()
			return err
		}); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return string(out)
	}
	state := func() string {
		return run("ip -o link | cut -d: -f2; ip rule; ip route show table all; nft list ruleset")
	}

	// A bridge stands for the cable: all of this is in one namespace.
	run("ip link add NODE type bridge; ip addr add 10.210.9.10/24 dev NODE; ip link set NODE up; ip route add default via 10.210.9.1")
	if err := Run(node.NetNS, masquerade(cluster.PodCIDR), "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	before := state()

	run("ip link add pod0 type veth peer name eth0 netns " + path.Base(at("pod")) + "; ip link set pod0 up; ip addr add 10.200.0.1/32 dev pod0")
	run("ip route add 10.200.0.2 dev pod0 scope host; ip route add 10.201.0.0/16 via 10.210.9.11; ip route add 10.30.0.0/16 dev pod0 table " +
		"18952; ip rule add to 10.30.0.0/16 priority 18952 lookup 18952")
	run("nft add table ip strange; nft add chain ip strange c")
	if during := state(); during == before || !strings.Contains(during, "18952") {
		t.Fatalf("this test shows nothing:\n%s", during)
	}
	for range 2 { // the second time changes nothing
		if err := Forget(cluster, node); err != nil {
			t.Fatal(err)
		}
	}
	if after := state(); after != before {
		t.Errorf("after Forget:\n%s\nbefore:\n%s", after, before)
	}
}
