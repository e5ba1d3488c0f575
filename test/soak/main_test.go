// SPDX-License-Identifier: Apache-2.0

// Package soak runs a busy installation: namespaces of one consumer, offloaded to three providers; make soak has 20 of them with 300 pods. Users and
// faults act at random, from a seed that makes the same actions again. At the end no law of offloading is broken, everything has settled, the
// processes of Liqo use as much memory as at the start, and nothing is left over after the namespaces are unoffloaded and the providers unpeered.
//
// Package plan decides what happens, and this package does it. It knows what package env knows. It brings the clusters of testdata/four.yaml up and
// takes them down. Run it with: make soak TIME=1h SEED=7
package soak

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/recorder"
	"liqo.io/liqo/test/soak/plan"
)

var (
	keep       = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	lasting    = flag.Duration("for", 4*time.Minute, "how long users and faults act")
	seed       = flag.Uint64("seed", 0, "of the actions; the same seed gives the same actions; 0: another one each time")
	pace       = flag.Duration("pace", 3*time.Second, "from one action to the next; a shorter one needs more processors than two")
	namespaces = flag.Int("namespaces", 6, "offloaded namespaces")
	each       = flag.Int("each", plan.Few, "pods in each namespace at the start and at the end, at least 8")
	kept       = flag.String("history", "", "file that keeps the history; empty: one that stays only if the test fails")

	clusters  *env.Env
	consumer  *env.Cluster
	providers []*env.Cluster
)

func TestMain(m *testing.M) {
	env.Main(m, "testdata/four.yaml", keep, func(e *env.Env) error {
		clusters, consumer, providers = e, e.Clusters[0], e.Clusters[1:]
		if err := recorder.Ready(e); err != nil {
			return err
		}
		return e.LoadNeeded("stamp-image.tar")
	})
}

// forever is the limit for how long the clusters may differ while users go on: there is none. A pod whose namespace has lost its provider differs until
// the provider's Kubernetes has deleted the old remote namespace, which takes longer after a fault there and under load. The time is reported, and that
// the clusters agree is checked at the end. Faults one at a time, without users: test/faults, which has a limit.
const forever = 365 * 24 * time.Hour

func TestSoak(t *testing.T) {
	defer clusters.Step(t)()
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	t.Logf("seed %d; for the same actions again: make soak TIME=%v SEED=%d", *seed, *lasting, *seed)
	before := map[*env.Cluster][]string{}
	for _, c := range clusters.Clusters {
		installed(t, c)
		before[c] = c.Everything(t)
	}
	history := recorder.Start(t, clusters, recorder.Subject{File: *kept, Consumer: consumer, Providers: providers})
	a := newApplier(t, history)
	busy, r := plan.Busy(*namespaces, *each), newResult(*seed)

	start := time.Now()
	a.steps(t, plan.Empty(), plan.Towards(plan.Empty(), busy))
	r.note("until all pods run, from nothing", "%.0f s", time.Since(start).Seconds())
	r.memory[0] = measure(t)

	state := a.act(t, rand.New(rand.NewPCG(*seed, 0)), busy, time.Now().Add(*lasting))

	// Faults and users stop, and all is as at the start again.
	a.all(t, state, plan.Towards(state, busy))
	a.mark(t, recorder.Marker{Kind: "start", Cause: "end"})
	start = time.Now()
	settled(t, busy)
	r.note("until everything had settled, after the last action", "%.1f s", time.Since(start).Seconds())
	reply := a.mark(t, recorder.Marker{Kind: "end", Cause: "end"})
	r.note("until the clusters agreed, after that", "%.1f s: %s", reply.Took, reply.Seen)
	if !reply.Agree {
		t.Errorf("the clusters do not agree at the end: %s", reply.Seen)
	}
	// The same load needs the same memory only if it is spread as at the start.
	a.steps(t, busy, busy.Rebalance())
	r.memory[1] = measure(t)
	r.compare(t)
	a.end()
	r.history(history.Check(t, forever, forever))

	a.all(t, busy, plan.Towards(busy, plan.Empty()))
	for _, c := range clusters.Clusters {
		env.Settled(t, c)
		c.NothingNew(t, before[c], env.Hang)
	}
	r.note("left over after all was unoffloaded and unpeered", "nothing")
	r.applied(a)
	r.report(t)
}

// installed installs Liqo with the label by which plans select.
func installed(t *testing.T, c *env.Cluster) {
	t.Helper()
	if c.TryLiqoctl("status").Code == 0 {
		return
	}
	// Pods run on all nodes of a cluster.
	_ = c.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	flags := []string{"install", "--cluster-name", c.Name}
	if region := plan.Regions[c.Name]; region != "" {
		flags = append(flags, "--cluster-labels", "topology.liqo.io/region="+region)
	}
	c.Liqoctl(t, flags...)
	env.Healthy(t, c)
}
