// SPDX-License-Identifier: Apache-2.0

// Package offload tests offloading on two real clusters, as a user would: the objects of the quick start; every field of every reflected
// kind, to the provider and back; strategies and mappings of namespaces; kubectl on offloaded pods; invalid input; settings; and what is
// left at the end.
//
// It knows what package env knows. It uses two clusters that are given, or brings the playground's scenario quick-start up and takes it
// down. Each test stands alone and makes its own namespaces: go test ./test/offload -v -keep -run 'TestRows/Service'
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
	keep    = flag.Bool("keep", false, "use the clusters that are up, with Liqo installed and peered if it is, and leave them up (for work on these tests)")
	long    = flag.Bool("long", false, "also the settings, each of which restarts a component of Liqo")
	moments = flag.Int("moments", 1, "at how many random moments of each phase TestMoveSurvives kills something, besides its beginning")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider

	mu    sync.Mutex
	names []string // of namespaces that tests created in rome

	prepare sync.Once
	// others are the tests that run together, and namespaces is TestLeftoversOfNamespaces, for those that run after them.
	others, namespaces sync.WaitGroup

	// Objects of the clusters before the first test: beforeInstall without Liqo, nil if it was installed already, and beforeTests with it.
	beforeInstall, beforeTests map[*env.Cluster][]string
)

func TestMain(m *testing.M) {
	env.Main(m, env.Pair, keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		// Of the places for parallel tests, two are taken by those that wait for all others.
		if err := flag.Set("test.parallel", "8"); err != nil {
			return err
		}
		return e.LoadNeeded("liqo-image.tar", "mover-image.tar", "traffic-image.tar", "tools", "demo")
	}, "--audit")
}

// accepts are the values with which milan lets its peers decide what these tests reflect and a default installation refuses.
var accepts = []string{
	"--set", "peers.services.types={ClusterIP,NodePort,LoadBalancer,ExternalName}", "--set", "peers.services.nodePorts=true", "--set",
	"peers.services.loadBalancerClasses={example.org/none}", "--set", "peers.tolerations={mine,late}",
	"--set", "peers.ingresses.hosts={*,example.org,}", // the last is empty: no host
	"--set", "peers.metadata.secrets.labels={secret.example.org/*}", "--set", "peers.metadata.configMaps.labels={secret.example.org/*}",
}

// installedAndPeered must be the first call of a test. It installs Liqo in both clusters and makes rome a consumer of milan, unless that has
// been done.
func installedAndPeered(t *testing.T) {
	t.Helper()
	clusters.Step(t)
	prepare.Do(func() {
		if rome.TryKubectl("", "get", "namespace", "liqo").Code != 0 && milan.TryKubectl("", "get", "namespace", "liqo").Code != 0 {
			beforeInstall = everything(t)
			milan.Install(t, accepts...)
			env.Healthy(t, milan)
		}
	})
	start := time.Now()
	env.Peered(t, rome, milan)
	clusters.Measure("installed and peered", "%.1f s", time.Since(start).Seconds())
	if beforeTests != nil {
		return
	}
	wantObject(t, rome, "coordination.k8s.io/v1/Lease", "kube-node-lease", virtualNode, "{}")
	for _, c := range clusters.Clusters {
		env.Eventually(t, env.Hang, "there is a NamespaceMap in "+c.Name, func() (string, bool) {
			all, err := c.Objects("virtualkubelet.liqo.io/v1alpha1/NamespaceMap", "")
			return fmt.Sprint(len(all), err), err == nil && len(all) == 1
		})
	}
	beforeTests = everything(t)
}

// together is installedAndPeered for a test that changes and counts nothing outside of its own namespaces. It runs beside others of its kind, after all other
// tests: they wait for pods and not for each other.
func together(t *testing.T) {
	t.Helper()
	installedAndPeered(t)
	others.Add(1)
	t.Cleanup(others.Done) // the last clean-up
	t.Parallel()
}

func everything(t *testing.T) map[*env.Cluster][]string {
	t.Helper()
	return map[*env.Cluster][]string{rome: rome.Everything(t), milan: milan.Everything(t)}
}
