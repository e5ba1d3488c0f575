// SPDX-License-Identifier: Apache-2.0

// Package bench measures the network between two clusters and compares it with its parts: the plain path between nodes, bare WireGuard
// between the same nodes, and bare WireGuard between the gateways' pods. One run measures all paths alternately, in several rounds, so that
// the ratios are meaningful on a machine with other load.
//
// It knows what package env knows, and needs iperf3. Run it with: make bench-network
package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

var (
	asked   = flag.Bool("measure", false, "measure: some minutes on real clusters")
	keep    = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up")
	alone   = flag.Bool("alone", false, "without Liqo: only the paths that it is compared with")
	rounds  = flag.Int("rounds", 3, "number of measurements of each path")
	seconds = flag.Int("seconds", 3, "how long each measurement takes")
	streams = flag.Bool("carriers", true, "measure the tunnel over each carrier as well, in several conditions of the link")
	links   = flag.Int("links", len(conditions), "in how many states of the link the carriers are measured")
	settle  = flag.Duration("settle", 10*time.Second, "pause before idle gateways are measured")
	idle    = flag.Duration("idle", time.Minute, "how long idle gateways are measured")
	which   = flag.String("scenario", "quick-start", "scenario of the playground; its first two clusters have two nodes each")
)

// TestNetwork prints the tables for docs/benchmarks.md.
func TestNetwork(t *testing.T) {
	if os.Geteuid() != 0 || !*asked {
		t.Skip("SKIPPED: it creates real clusters, which needs root, and takes minutes: -measure")
	}
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Fatalf("%v; install it with: apt-get install iperf3", err)
	}
	clusters, err := env.Up("../..", *which, *keep)
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
	consumer, provider := clusters.Clusters[0], clusters.Clusters[1]
	for _, c := range []*env.Cluster{consumer, provider} {
		traffic.Serve(t, c)
		t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--timeout=60s") })
		if !*alone && !*keep {
			settings := []string{"--set", "networking.internal=true"}
			if c == provider {
				settings = append(settings, "--set", streamSettings)
			}
			c.Liqoctl(t, append([]string{"install", "--cluster-name", c.Name}, settings...)...)
		}
	}
	if !*alone {
		if !*keep {
			consumer.Peer(t, provider)
		}
		env.Eventually(t, time.Minute, "the network is Established", func() (string, bool) {
			condition, err := networks.Condition(consumer, provider)
			return fmt.Sprintf("%s %s (%v)", condition.Status, condition.Message, err), condition.Status == "Established"
		})
	}
	measureAll(t, clusters, consumer, provider)
}

func measureAll(t *testing.T, clusters *env.Env, consumer, provider *env.Cluster) {
	paths := baselines(t, clusters, consumer, provider)
	var watch *memory
	var over *carriers
	if !*alone {
		paths = append(paths, liqoPaths(t, clusters, consumer, provider)...)
		if *streams {
			over = &carriers{clusters, consumer, provider}
			over.offer(t)
		}
		watch = watchGateways(t, consumer, provider)
		watch.enter("idle")
		idleFor(*settle)
	}
	for _, p := range paths {
		p.serve(t, clusters)
	}
	results := map[string]map[string][]float64{}
	defer func() { // also what there is when a measurement fails
		fmt.Println(table(paths, results))
		if over != nil {
			fmt.Println(carrierTable(results))
		}
		if watch != nil {
			watch.stop()
			fmt.Println(watch.table())
		}
	}()
	for round := range *rounds {
		for _, p := range paths {
			start := time.Now()
			if watch != nil {
				watch.enter("load")
			}
			add(results, p.name, p.measure(t, clusters))
			t.Logf("round %d, %s: %.0f s", round+1, p.name, time.Since(start).Seconds())
		}
		if over != nil {
			start := time.Now()
			watch.enter("load, all carriers")
			over.measure(t, paths[slices.IndexFunc(paths, func(p path) bool { return p.name == onName })], results)
			t.Logf("round %d, carriers: %.0f s", round+1, time.Since(start).Seconds())
		}
	}
	if watch != nil {
		watch.enter("idle after load")
		idleFor(*settle)
	}
}
