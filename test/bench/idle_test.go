// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// TestIdleGateway prints what a gateway with three peers uses while no pod sends anything.
func TestIdleGateway(t *testing.T) {
	if os.Geteuid() != 0 || !*asked {
		t.Skip("SKIPPED: it creates real clusters, which needs root, and takes minutes: -measure")
	}
	clusters, err := env.Up("../..", "testdata/four.yaml", *keep)
	if err != nil {
		t.Fatal(err)
	}
	if !*keep {
		t.Cleanup(func() {
			if err := clusters.Down(); err != nil {
				t.Error(err)
			}
		})
	}
	hub, peers := clusters.Clusters[0], clusters.Clusters[1:]
	for _, c := range clusters.Clusters {
		c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=true", "--set", streamSettings)
	}
	var all []carriers
	report := "\n| peers | carrier | processor time, share of one | RSS / anonymous / working set (MB) |\n|---|---|---|---|\n"
	row := func(kind string) {
		t.Helper()
		number, err := gateway(t, hub).Process("liqo")
		if err != nil {
			t.Fatal(err)
		}
		idleFor(*settle)
		before := processorTime(t, number)
		start := time.Now()
		idleFor(*idle)
		used, seen := processorTime(t, number)-before, sample(number)
		report += fmt.Sprintf(
			"| %d | %s | %.2f %% | %.0f / %.0f / %.0f |\n", len(all), kind, 100*used.Seconds()/time.Since(start).Seconds(), seen[0], seen[1],
			seen[2],
		)
	}
	row("none")
	for i, peer := range peers {
		peer.Peer(t, hub)
		one := carriers{clusters, peer, hub}
		if i == 0 {
			one.offer(t)
		}
		one.use(t, "UDP")
		all = append(all, one)
		row("UDP")
	}
	for _, kind := range carrierKinds[1:] {
		for _, one := range all {
			one.use(t, kind)
		}
		row(kind)
	}
	for _, one := range all {
		one.fault(t, "clear")
	}
	fmt.Println(report)
}

// idleFor is the definition of idle.
func idleFor(wait time.Duration) { <-time.After(wait) }

// processorTime is what a process has used, to 10 ms.
func processorTime(t *testing.T, number int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", number))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the name
	words := strings.Fields(rest)
	const user, system, tick = 11, 12, 10 * time.Millisecond
	var sum time.Duration
	for _, at := range []int{user, system} {
		n, err := strconv.ParseInt(words[at], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
