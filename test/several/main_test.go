// SPDX-License-Identifier: Apache-2.0

// Package several tests a cluster with several peers at once: an application with pods here and in two providers, one of which fails or leaves;
// clusters that are consumer and provider of each other, in a ring, and each of each. All clusters have the same pod network.
//
// It knows what package env knows. It brings three clusters up and takes them down; the last test adds a fourth one. Each test stands alone: it
// brings the peerings to the state it needs, which costs nothing if the test before left them so. Run all of it with: make test-long SUITE=several,
// its short form with: go test ./test/several -v, or one test: go test ./test/several -v -long -run 'TestRing$'
package several

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "all tests; without it, only those of one application in three clusters")

	clusters           *env.Env
	rome, milan, turin *env.Cluster
)

func TestMain(m *testing.M) {
	env.Main(m, env.Three, keep, func(e *env.Env) error {
		clusters, rome, milan, turin = e, e.Clusters[0], e.Clusters[1], e.Clusters[2]
		return e.LoadNeeded("liqo-image.tar", "traffic-image.tar", "tools", "mover-image.tar")
	})
}

// The tests in the order that changes the peerings least.

func TestApplication(t *testing.T)            { step(t, application) }
func TestFromProviderToProvider(t *testing.T) { step(t, fromProviderToProvider) }
func TestNodePorts(t *testing.T)              { step(t, nodePorts) }
func TestJobsUseTheAPIServer(t *testing.T)    { onlyLong(t); step(t, jobsUseTheAPIServer) }
func TestAttackNM6(t *testing.T)              { onlyLong(t); step(t, keysOfMoves) }
func TestSelectors(t *testing.T)              { onlyLong(t); step(t, selectors) }
func TestNameIsTakenInOne(t *testing.T)       { onlyLong(t); step(t, nameIsTakenInOne) }
func TestRemoteNamespaceDeleted(t *testing.T) { onlyLong(t); step(t, remoteNamespaceDeleted) }
func TestPeeredProviders(t *testing.T)        { onlyLong(t); step(t, peeredProviders) }
func TestUnpeerOne(t *testing.T)              { onlyLong(t); step(t, unpeerOne) }
func TestGatewayRestarts(t *testing.T)        { onlyLong(t); step(t, gatewayRestarts) }
func TestOneIsDead(t *testing.T)              { onlyLong(t); step(t, oneIsDead) }
func TestConsumerAndProvider(t *testing.T)    { onlyLong(t); step(t, consumerAndProvider) }
func TestRing(t *testing.T)                   { onlyLong(t); step(t, ring) }
func TestFourClusters(t *testing.T)           { onlyLong(t); step(t, fourClusters) }

func onlyLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("SKIPPED: the short form leaves it out: -long")
	}
}

// step runs a test on clusters with Liqo and measures it. If it fails it leaves what the clusters looked like.
func step(t *testing.T, run func(*testing.T)) {
	t.Helper()
	defer clusters.Step(t)()
	start := time.Now()
	if !t.Run("installed", func(t *testing.T) {
		for _, c := range clusters.Clusters {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				installed(t, c)
			})
		}
	}) {
		t.FailNow()
	}
	run(t)
	clusters.Measure(t.Name(), "%.1f s", time.Since(start).Seconds())
}

// labelsOf are the labels of each cluster, in their order. Two have the same region, and two have the same tier.
var labelsOf = []string{
	"topology.liqo.io/region=center,topology.liqo.io/tier=cloud", "topology.liqo.io/region=north,topology.liqo.io/tier=edge",
	"topology.liqo.io/region=north,topology.liqo.io/tier=cloud", "topology.liqo.io/region=south,topology.liqo.io/tier=edge",
}

// installed installs Liqo unless it is there and healthy.
func installed(t *testing.T, c *env.Cluster) {
	t.Helper()
	if c.TryLiqoctl("status").Code == 0 {
		return
	}
	c.Liqoctl(t, "install", "--cluster-name", c.Name, "--cluster-labels", labelsOf[slices.Index(clusters.Clusters, c)])
	env.Healthy(t, c)
}

// use is a peering: a consumer, then its provider.
type use [2]*env.Cluster

// star is the state of most tests: rome uses milan and turin.
func star() []use { return []use{{rome, milan}, {rome, turin}} }

// peered makes these the only peerings.
func peered(t *testing.T, want ...use) {
	t.Helper()
	ordered := func(then func(use)) {
		for _, consumer := range clusters.Clusters {
			for _, provider := range clusters.Clusters {
				if consumer != provider {
					then(use{consumer, provider})
				}
			}
		}
	}
	uses := func(one use) bool {
		columns := one[0].Columns(t, one[1])
		return columns != "absent" && !strings.HasPrefix(columns, "None ") && !strings.HasPrefix(columns, " ")
	}
	ordered(func(one use) {
		if !slices.Contains(want, one) && uses(one) {
			one[0].Liqoctl(t, "unpeer", "out-of-band", one[1].Name)
		}
	})
	ordered(func(one use) {
		if slices.Contains(want, one) && !uses(one) {
			one[0].Liqoctl(t, one[1].PeerCommand(t)...)
		}
	})
	for _, one := range want {
		one[0].NodeReady(t, one[1])
	}
	ordered(func(one use) {
		if !slices.Contains(want, one) && !slices.Contains(want, use{one[1], one[0]}) {
			one[0].WantColumns(t, one[1], "absent")
		}
	})
}

// others are the clusters without one.
func others(without *env.Cluster) []*env.Cluster {
	return slices.DeleteFunc(slices.Clone(clusters.Clusters), func(c *env.Cluster) bool { return c == without })
}

// available is the memory that this machine can still give to programs.
func available(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(netns.Host().Run(t, "cat", "/proc/meminfo")) {
		var kib int
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			return fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
		}
	}
	return "unknown"
}
