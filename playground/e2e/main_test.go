// SPDX-License-Identifier: Apache-2.0

// Package e2e proves the playground from outside: it runs the built program as root and talks
// to the clusters with their kubectl, as a user does. It must not import any other package
// of the playground, so that it also proves that files and output are enough for users.
//
// This file is the table of contents: the tests run in its order, and each brings up what
// it needs, so that -run picks any of them. There is one playground on a machine; the
// checks share what is up. The suite starts and ends with `playground down`, so nothing may be
// up that the owner of the machine still needs.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// program is the playground under test.
var program = "../../bin/playground"

// clean is the machine without a playground.
var clean snapshot

// cache is the discovery cache of kubectl.
var cache string

func TestMain(m *testing.M) {
	os.Exit(suite(m))
}

// suite runs the tests between two `down` and prints the measured times and values.
func suite(m *testing.M) int {
	flag.Parse()
	if os.Geteuid() != 0 {
		return m.Run() // every test skips, see needRoot
	}
	if named := os.Getenv("PLAYGROUND"); named != "" {
		program = named
	}
	path, err := filepath.Abs(program)
	if err == nil {
		path, err = exec.LookPath(path)
	}
	if err != nil {
		fmt.Printf("FAIL: no playground to test: %v; run `make build` in the root of the repository, or name one in $PLAYGROUND\n", err)
		return 1
	}
	program = path
	// Checks mostly wait, so more of them than processors can run side by side.
	if parallel := flag.Lookup("test.parallel"); !given(parallel.Name) {
		_ = parallel.Value.Set("8") // cannot fail: it is a number
	}
	// kubectl remembers what a server at an address serves: not in the user's home, and not
	// from one playground to the next (takeDown).
	if cache, err = os.MkdirTemp("", "e2e-kubectl-"); err != nil {
		fmt.Println("FAIL: no directory for the cache of kubectl:", err)
		return 1
	}
	defer os.RemoveAll(cache)
	_ = os.Setenv("KUBECACHEDIR", cache) // cannot fail: the name is right

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		fmt.Println("e2e: interrupted; taking the playground down")
		pg("down")
		_ = os.RemoveAll(cache)
		os.Exit(1)
	}()

	if r := pg("down"); r.code != 0 {
		fmt.Printf("FAIL: the first `playground down` failed: %s\n", r)
		return 1
	}
	clean = takeSnapshot()
	code := m.Run()
	if r := pg("down"); r.code != 0 {
		fmt.Printf("FAIL: the last `playground down` failed: %s\n", r)
		code = 1
	}
	if left := clean.difference(takeSnapshot()); len(left) > 0 {
		fmt.Println("FAIL: the suite left this behind on the machine (- before, + after):")
		for _, line := range left {
			fmt.Println("  " + line)
		}
		code = 1
	}
	printMeasured()
	return code
}

// needRoot skips tests of an ordinary user.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: real clusters need root (namespaces, cgroups, mounts)")
	}
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// TestRefusals: what cannot work is refused with a reason, before anything is changed.
func TestRefusals(t *testing.T) {
	takeDown(t)
	t.Run("bad_scenario", badScenarioIsRefused)
	t.Run("taken_network", takenNetworkIsRefused)
	t.Run("nothing_up", nothingUpIsReported)
}

// TestInterrupted: a start that ends in the middle leaves nothing, or nothing that matters.
func TestInterrupted(t *testing.T) {
	takeDown(t)
	t.Run("second_up_refused_and_first_interrupted", interruptedUpLeavesNothing)
	t.Run("killed", killedUpIsRepaired)
}

// TestControlPlaneOnly: two API servers without nodes, there in seconds.
func TestControlPlaneOnly(t *testing.T) {
	takeDown(t) // the time of the start is measured
	bring(t, "control-plane-only")
	t.Run("two_separate_api_servers", apiServersAreSeparate)
}

// TestScale: a hundred nodes and a thousand pods.
func TestScale(t *testing.T) {
	takeDown(t)
	bring(t, "scale")
	t.Run("hollow_nodes_and_pods", thousandHollowPods)
	t.Run("killed_and_record_gone", downWithoutRecord) // the machine is full of its processes now
}

// TestClusters: three clusters with the same networks, five real nodes, both modes of
// kube-proxy.
func TestClusters(t *testing.T) {
	bring(t, "three-overlap")
	makeFixtures(t)
	alpha, beta, gamma := clusterNamed(t, "alpha"), clusterNamed(t, "beta"), clusterNamed(t, "gamma")

	// Before other checks use up addresses, in each cluster others.
	phase(t, "equal_pod_addresses", func(t *testing.T) { equalPodAddresses(t, alpha, beta, gamma) })
	phase(t, "checks", func(t *testing.T) {
		for _, c := range []cluster{alpha, beta} {
			parallel(t, c.Name, c, clusterChecks)
			parallel(t, c.Name, c, serviceChecks)
		}
		parallel(t, gamma.Name, gamma, []check{{"metrics", metricsAreThere}})
		for _, c := range betweenChecks {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.do(t, alpha, beta, gamma) })
		}
	})
	phase(t, "life", func(t *testing.T) {
		t.Run("up_again", upAgainChangesNothing)
		t.Run("another_up_refused", anotherScenarioIsRefused)
	})
	phase(t, "faults_in_clusters", func(t *testing.T) {
		t.Run("node_power_alpha", func(t *testing.T) { t.Parallel(); nodePower(t, alpha) })
		t.Run("component_kill_beta", func(t *testing.T) { t.Parallel(); componentKill(t, beta) })
		t.Run("gamma", func(t *testing.T) {
			t.Parallel()
			t.Run("component_stop", func(t *testing.T) { componentStop(t, gamma) })
			t.Run("node_restart", func(t *testing.T) { firstNodeRestart(t, gamma) })
		})
	})
	phase(t, "all_well_again", allWell)
	phase(t, "faults_between", func(t *testing.T) {
		l := newLinks(t, alpha, beta, gamma)
		t.Run("delay", l.delay)
		t.Run("loss", l.loss)
		t.Run("bandwidth", l.bandwidth)
		t.Run("partition", l.partition)
		t.Run("one_way", l.oneWay)
		t.Run("allow", l.allow)
		t.Run("host", l.host)
		t.Run("refused", l.refused)
		t.Run("clear", l.clear)
		t.Run("nat", l.nat)
		t.Run("proxies", l.proxies)
	})
	phase(t, "add_and_remove", addAndRemove)
	phase(t, "kill_everything", downAfterKill)
}

// check is one check of one cluster.
type check struct {
	name string
	do   func(t *testing.T, c cluster)
}

func parallel(t *testing.T, name string, c cluster, checks []check) {
	for _, check := range checks {
		t.Run(name+"/"+check.name, func(t *testing.T) { t.Parallel(); check.do(t, c) })
	}
}
