// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// The tests of this file wait until all others have ended, so that they run last. Run alone, they check what one offloaded namespace leaves.

// TestLeftoversOfNamespaces: after the deletion of all namespaces of these tests, both clusters have no more objects than before.
func TestLeftoversOfNamespaces(t *testing.T) {
	installedAndPeered(t)
	namespaces.Add(1)
	t.Cleanup(namespaces.Done)
	t.Parallel()
	others.Wait()
	t.Run("one namespace", func(t *testing.T) { // deleted at the end of the subtest
		s := offload(t)
		s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
		s.running(t, "p")
	})
	namespacesGone(t)
	for c, before := range beforeTests {
		nothingNew(t, c, before)
	}
}

// TestLeftoversOfLiqo: after unpeering and uninstallation, both clusters have no more objects than before the installation.
func TestLeftoversOfLiqo(t *testing.T) {
	installedAndPeered(t)
	t.Parallel()
	others.Wait()
	namespaces.Wait()
	if beforeInstall == nil || *keep {
		t.Skip("NOT RUN: Liqo was installed before these tests, or -keep leaves it for the next run")
	}
	namespacesGone(t)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	for c, before := range beforeInstall {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Liqoctl(t, "uninstall", "--purge")
			c.NothingNew(t, before, env.Hang)
		})
	}
}

// namespacesGone waits until all namespaces of these tests are gone in both clusters.
func namespacesGone(t *testing.T) {
	t.Helper()
	env.Eventually(t, env.Hang, "the namespaces of the tests are gone", func() (string, bool) {
		var left []string
		for _, c := range clusters.Clusters {
			all, err := c.Objects(namespaceKind, "")
			if err != nil {
				return err.Error(), false
			}
			for _, one := range all {
				if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(one.GetName(), name) }) {
					left = append(left, c.Name+"/"+one.GetName())
				}
			}
		}
		return strings.Join(left, " "), len(left) == 0
	})
}

// nothingNew waits until a cluster has no object that it had not before. Expected are the IPMapping of rome's API server, which milan creates
// for the first pod and keeps until the peering ends, and what Helm and Kubernetes keep of an upgrade for a rollback.
func nothingNew(t *testing.T, c *env.Cluster, before []string) {
	t.Helper()
	before = slices.Clone(before)
	for _, line := range c.Everything(t) {
		for _, expected := range []string{
			"net.liqo.io/ipmappings /liqo-milan-", "/secrets liqo/sh.helm.release.v1.", "apps/replicasets liqo", "apps/controllerrevisions liqo",
		} {
			if strings.HasPrefix(line, expected) {
				before = append(before, line)
			}
		}
	}
	slices.Sort(before)
	c.NothingNew(t, before, env.Hang)
}
