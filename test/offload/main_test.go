// SPDX-License-Identifier: Apache-2.0

// Package offload runs offloading on two real clusters, as a user would: the quick start, what becomes of each field of each kind on its
// way to the provider and back, strategies and mappings of namespaces, kubectl on pods that run elsewhere, input that cannot work, and
// what is left in the end.
//
// It knows what package env knows. It brings the playground's scenario quick-start up and takes it away. Run it with: make e2e, and
// one part of it again and again with: go test ./test/offload -v -keep -run 'TestOffload/rows/Service'
package offload

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up (for work on these tests)")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider

	mu    sync.Mutex
	names []string // of namespaces that were made in rome
)

func TestMain(m *testing.M) {
	env.Main(m, "quick-start", keep, func(b *env.Env) error {
		clusters, rome, milan = b, b.Clusters[0], b.Clusters[1]
		for _, image := range []string{"tools", "demo"} {
			if err := b.Load(image); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestOffload is all of it on one installation. No part needs what another left: each makes namespaces of its own.
func TestOffload(t *testing.T) {
	fresh := map[*env.Cluster][]string{rome: rome.Everything(t), milan: milan.Everything(t)}
	installAndPeer(t)
	bare := map[*env.Cluster][]string{rome: rome.Everything(t), milan: milan.Everything(t)}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"quick start", quickStart},
		{"rows", rows},
		{"namespaces", namespaces},
		{"as if local", asIfLocal},
		{"bad input", badInput},
		{"status back", statusBack},
	} {
		began := time.Now()
		t.Run(step.name, step.run)
		clusters.Measure("step "+step.name, "%.1f s", time.Since(began).Seconds())
	}
	t.Run("nothing is left", func(t *testing.T) {
		emptied(t)
		for c, before := range bare {
			nothingNew(t, c, before)
		}
	})
	// An upgrade leaves what Helm and Kubernetes keep for going back.
	t.Run("settings", settings)
	emptied(t)
	if *keep {
		return // what was installed is for the next run
	}
	t.Run("nothing is left after uninstallation", func(t *testing.T) {
		rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
		for _, c := range clusters.Clusters {
			c.Liqoctl(t, "uninstall", "--purge")
		}
		for c, before := range fresh {
			c.NothingNew(t, before, time.Minute)
		}
	})
}

func installAndPeer(t *testing.T) {
	t.Helper()
	node := func() (string, bool) {
		said := rome.TryKubectl("", "get", "node", "liqo-"+milan.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return said.String(), said.Out == "True"
	}
	if _, ready := node(); *keep && ready {
		return
	}
	for _, c := range clusters.Clusters {
		c.Liqoctl(t, "install", "--cluster-name", c.Name)
	}
	began := time.Now()
	rome.Peer(t, milan)
	env.Eventually(t, time.Minute, "the virtual node is Ready", node)
	clusters.Measure("peer command to virtual node Ready", "%.1f s", time.Since(began).Seconds())
	becomes(t, rome, "coordination.k8s.io/v1/Lease", "kube-node-lease", "liqo-"+milan.Name, "{}", soon)
	for _, c := range clusters.Clusters {
		env.Eventually(t, soon, "there is a NamespaceMap in "+c.Name, func() (string, bool) {
			all, err := c.Objects("virtualkubelet.liqo.io/v1alpha1/NamespaceMap", "")
			return fmt.Sprint(len(all), err), err == nil && len(all) == 1
		})
	}
}
