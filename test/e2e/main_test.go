// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the product on two real clusters, as a user would: with its programs and kubeconfigs only. It knows nothing of the
// product's code but the public API types.
//
// Each test stands alone: it brings the clusters to the state it needs (installed, peered or not), which costs little if the test
// before left them so, and makes its own namespaces. By default the clusters are the playground's; env.ConsumerVariable and
// env.ProviderVariable name any other two. `make test` runs the short tests, `make test-long SUITE=e2e` all of them.
package e2e

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/inventory"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "run the tests that take minutes as well")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider, unless a test exchanges them

	fresh = map[*env.Cluster][]string{} // all objects of clusters in which Liqo was not installed when the tests started
)

func TestMain(m *testing.M) {
	env.Main(m, env.Pair, keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		if err := e.LoadNeeded("liqo-image.tar", "traffic-image.tar", "tools"); err != nil {
			return err
		}
		for _, c := range e.Clusters {
			objects, err := inventory.Everything(c.Config())
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(objects, func(line string) bool { return strings.Contains(line, "liqo") }) {
				fresh[c] = objects
			}
		}
		return nil
	}, "--audit")
}

// both are the clusters.
func both() []*env.Cluster { return []*env.Cluster{rome, milan} }

// eachAlone has something done to both clusters at the same time, as the last thing of a test: they have nothing to do with each other yet, or any more.
func eachAlone(t *testing.T, do func(*testing.T, *env.Cluster)) {
	t.Helper()
	for _, c := range both() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			do(t, c)
		})
	}
}

// takesLong skips a test in the run that is to take minutes in all.
func takesLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("NOT RUN: it takes minutes; run: make test-long SUITE=e2e")
	}
}
