// SPDX-License-Identifier: Apache-2.0

// Package offload measures the cost of offloading: the time until pods are Ready, compared with the same pods without Liqo, and the API
// writes, processor time, memory and bytes that offloading needs. Offloaded and vanilla bursts alternate, as in the measurement of the
// reference.
//
// It knows what package env knows, including the audit logs of both API servers. Run it with: make bench-offload
package offload

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

var (
	asked  = flag.Bool("measure", false, "measure: ten minutes on real clusters")
	keep   = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up")
	quick  = flag.Bool("quick", false, "bursts of 10 and 100 pods only, once, 100 objects for the restart, and half a minute idle")
	sizes  = flag.String("pods", "10,100,1000", "pods of the bursts")
	rounds = flag.Int("rounds", 2, "how often each burst is measured")
	idle   = flag.Duration("idle", 5*time.Minute, "how long writes are counted without a workload change")
	parts  = flag.String("parts", "objects,idle,burst,restart,real", "what to measure; growth, which takes a quarter of an hour, only if named")
	many   = flag.Int("objects", 1000, "unchanged objects while the virtual kubelet restarts, half of them pods")
	grows  = flag.String("growth", "1000,2000,5000,10000", "pods of one virtual node, step by step, in the part growth")
	// A provider accepts 500 namespaces of one peer, and one is there from the start.
	spaces = flag.String("spaces", "50,200,499", "offloaded namespaces, step by step, in the part growth")
	fills  = flag.String("document", "", "document whose table is replaced by the results")
	record = flag.String("json", "../../../bin/bench-offload.json", "file for the results")
)

// settle is how long counting goes on after the last event, for late writes, and the idle time before each burst. The reference was measured
// with the same time.
const settle = 4 * time.Second

// offloaded is the namespace whose pods run at the provider; vanilla is a local namespace of the provider.
const (
	offloaded = "bench"
	vanilla   = "vanilla"
)

// bench is the state that all parts share.
type bench struct {
	consumer, provider *env.Cluster
	counters           *byteCounters
	results            results
}

// TestOffloading prints the table for docs/benchmarks.md.
func TestOffloading(t *testing.T) {
	if os.Geteuid() != 0 || !*asked {
		t.Skip("SKIPPED: it creates real clusters, which needs root, and takes minutes: -measure")
	}
	if *quick {
		*sizes, *rounds, *many, *idle = "10,100", 1, 100, 30*time.Second
	}
	clusters, err := env.Up("../../..", "scale", *keep, "--audit")
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
	b := &bench{consumer: clusters.Clusters[0], provider: clusters.Clusters[1]}
	b.results.Writes = map[string]objectWrites{}
	for _, c := range clusters.Clusters {
		if c.AuditLog == "" {
			t.Fatalf("cluster %s has no audit log, without which writes cannot be counted; run: playground up scale --audit", c.Name)
		}
	}
	b.prepare(t)
	b.counters = countBytes(t, b.consumer, b.provider)
	b.results.Machine = machine()
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{{"objects", b.objects}, {"idle", b.idle}, {"burst", b.bursts}, {"restart", b.restart}, {"real", b.realKubelet}, {"growth", b.growth}} {
		if slices.Contains(strings.Split(*parts, ","), part.name) && !t.Failed() {
			start := time.Now()
			part.run(t)
			t.Logf("%s: %.0f s", part.name, time.Since(start).Seconds())
		}
	}
	b.results.report(t)
}

// prepare installs, peers and offloads as for the reference: external network, one direction, one namespace of the same name. It taints the
// provider's real node, so that all measured pods land on hollow nodes.
func (b *bench) prepare(t *testing.T) {
	t.Helper()
	if !*keep || b.consumer.TryKubectl("", "get", "node", "liqo-"+b.provider.Name).Code != 0 {
		for _, c := range []*env.Cluster{b.consumer, b.provider} {
			// Liqo must run on a real node: hollow nodes accept all pods, but run none.
			c.Liqoctl(t, "install", "--cluster-name", c.Name, "--set", "networking.internal=false",
				"--set", `common.nodeSelector.kubernetes\.io/hostname=`+c.Nodes[0].Name)
		}
		words := strings.Fields(b.provider.Liqoctl(t, "generate", "peer-command", "--only-command").Out)
		env.Eventually(t, 2*time.Minute, "the clusters are peered", func() (string, bool) { // other components that are starting can make a try fail
			result := b.consumer.TryLiqoctl(words[1:]...)
			return result.String(), result.Code == 0
		})
		b.provider.Kubectl(t, "patch", "foreigncluster", b.consumer.Name, "--type", "merge", "-p", `{"spec":{"network":{"podCIDRs":["`+consumerNetwork+`"]}}}`)
		b.provider.Kubectl(t, "taint", "node", b.provider.Nodes[0].Name, "bench=real:NoSchedule")
	}
	namespace := func(name string) string { return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n" }
	b.consumer.Apply(t, namespace(offloaded))
	b.provider.Apply(t, namespace(vanilla))
	b.consumer.Liqoctl(t, "offload", "namespace", offloaded, "--pod-offloading-strategy", "Remote", "--namespace-mapping-strategy", "EnforceSameName")
	env.Eventually(t, 30*time.Second, "the provider has the remote namespace", func() (string, bool) {
		result := b.provider.TryKubectl("", "get", "namespace", offloaded)
		return result.String(), result.Code == 0
	})
}

// podCounts are the sizes of the bursts.
func podCounts(t *testing.T) (all []int) {
	t.Helper()
	for word := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			t.Fatalf("-pods %s: %q is no number of pods", *sizes, word)
		}
		all = append(all, n)
	}
	return all
}

// idleFor waits a fixed time. It is part of the measurement, for late writes or for their absence, and not a wait for an event.
func idleFor(d time.Duration) { <-time.After(d) }

// machine describes the machine of the measurement.
func machine() string {
	cores, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*")
	load, _ := os.ReadFile("/proc/loadavg")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strconv.Itoa(len(cores)) + " cores, kernel " + strings.TrimSpace(string(kernel)) +
		", load before the first measurement " + strings.Join(strings.Fields(string(load))[:3], " ")
}
