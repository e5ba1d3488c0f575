// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// seen counts the packets between two addresses of the outermost header, and those that contain the word.
type seen struct {
	From, To      netip.Addr
	Frames, Found int
}

// word returns a random word, which no other packet contains.
func word() string { return fmt.Sprintf("marker-%016x", rand.Uint64()) }

// capture searches all packets at a place for a word, until the caller calls the returned function, which returns the result.
func capture(t *testing.T, at netns.Place, what string) (end func() []seen) {
	t.Helper()
	cmd, lines := traffic.Start(t, clusters, at, "capture", "--word", what)
	return func() []seen { return finish(t, at, cmd, lines) }
}

func finish(t *testing.T, at netns.Place, cmd *exec.Cmd, lines *bufio.Scanner) (all []seen) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		var line struct {
			seen
			Dropped int
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if line.Dropped > 0 {
			t.Fatalf("the capture at %s missed %d packets, so it proves nothing", at.Name, line.Dropped)
		}
		if line.From.IsValid() {
			all = append(all, line.seen)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the capture at %s: %v", at.Name, err)
	}
	return all
}

// found sums up the packets with the word.
func found(all []seen) (n int) {
	for _, packets := range all {
		n += packets.Found
	}
	return n
}

// nothingInTheClear sends a word from pod to pod and searches for it between the clusters. It also searches on the sender's node, where it
// must be found: otherwise the search proves nothing.
func nothingInTheClear(t *testing.T) {
	for _, pair := range directions() {
		here, there := pair[0], pair[1]
		what := word()
		client, server := traffic.AllServers(t, here)[0], traffic.AllServers(t, there)[0]
		address := valid(t)(see(t, here, there).Pod(server.Address))
		between, onNode := capture(t, netns.Router(), what), capture(t, client.Node.Net(), what)
		must(t, inside(t, client), netip.Addr{}, "http", traffic.Endpoint(address, traffic.EchoPort+1), "--bytes", "300000", "--word", what, "--timeout", "20s")
		must(t, inside(t, client), netip.Addr{}, "udp", traffic.Endpoint(address, traffic.EchoPort), "--bytes", "1000", "--word", what)
		must(t, client.Node.Net(), netip.Addr{}, "udp", traffic.Endpoint(address, traffic.EchoPort), "--bytes", "1000", "--word", what)
		passed, clear := 0, 0
		for _, packets := range between() {
			if here.NodeCIDR.Contains(packets.From) && there.NodeCIDR.Contains(packets.To) ||
				there.NodeCIDR.Contains(packets.From) && here.NodeCIDR.Contains(packets.To) {
				passed += packets.Frames
				clear += packets.Found
			}
			// A packet with an address that is not a node's has left the fabric.
			if !here.NodeCIDR.Contains(packets.From) && !there.NodeCIDR.Contains(packets.From) && packets.Found > 0 {
				t.Errorf("from %s to %s: %d packets with the word", packets.From, packets.To, packets.Found)
			}
		}
		if clear > 0 {
			t.Errorf("%s to %s: %d of %d packets between the clusters contain the word unencrypted", here.Name, there.Name, clear, passed)
		}
		if local := found(onNode()); local == 0 || passed < 20 {
			t.Errorf("%s to %s: the word was seen %d times on %s, and %d packets passed between the clusters: the search proves nothing",
				here.Name, there.Name, local, client.Node.Name, passed)
		}
	}
}

// narrow is the largest packet that passes when the path is narrowed.
const narrow = 1300

// narrowed reduces the MTU for UDP between two clusters and blocks ICMP: larger packets are lost without an error.
func narrowed(t *testing.T, all ...*env.Cluster) {
	t.Helper()
	router := netns.Router()
	undo := func() {
		for _, script := range []string{"nft delete table ip narrow", "while ip rule del pref 77; do :; done", "ip route flush table 77"} {
			_ = router.Try("sh", "-c", script) // some of it may not exist
		}
	}
	undo()
	t.Cleanup(undo)
	// Sets "do not fragment" on all packets, and drops the ICMP errors.
	router.Run(t, "nft", "add table ip narrow; add chain ip narrow out { type filter hook output priority 0; }; add rule ip narrow out icmp "+
		"type destination-unreachable drop; "+
		"add chain ip narrow in { type filter hook prerouting priority -300; }; add rule ip narrow in ip protocol udp ip frag-off set 0x4000")
	for _, c := range all {
		router.Run(t, "ip", "route", "add", c.NodeCIDR.String(), "dev", bridge(c), "mtu", fmt.Sprint(narrow), "table", "77")
		router.Run(t, "ip", "rule", "add", "pref", "77", "ipproto", "udp", "to", c.NodeCIDR.String(), "lookup", "77")
	}
}

// bridge is the router's link to a cluster.
func bridge(c *env.Cluster) string { return fmt.Sprintf("br%d", 1+slices.Index(clusters.Clusters, c)) }

// smallerPath reduces the path MTU between the clusters without an ICMP error. The gateways must detect that.
func smallerPath(t *testing.T) {
	client, server := traffic.AllServers(t, alpha)[0], traffic.AllServers(t, beta)[0]
	address := valid(t)(see(t, alpha, beta).Pod(server.Address))
	narrowed(t, alpha, beta)
	took := env.Eventually(t, env.Hang, "10 MB pass although packets of 1500 bytes are lost", func() (string, bool) {
		a, err := ask(t, inside(t, client), "http", traffic.Endpoint(address, traffic.EchoPort+1), "--bytes", "10000000", "--timeout", "10s")
		return fmt.Sprint(a, err), err == nil
	})
	clusters.Measure("path between clusters becomes narrower, ICMP blocked, to 10 MB", "%.1f s", took.Seconds())
	must(t, inside(t, client), netip.Addr{}, "udp", traffic.Endpoint(address, traffic.EchoPort), "--bytes", "20000")
	env.Eventually(t, env.Hang, "the status shows the path's MTU", func() (string, bool) {
		view, err := networks.See(alpha, beta)
		return fmt.Sprint(view.MTU, err), err == nil && view.MTU > 0 && view.MTU <= narrow-60
	})
}
