// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	sharing "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// point is a moment on the way of rome's peering with milan, as an outsider can see it.
type point struct {
	name string
	seen func() bool
}

// some reports whether the cluster has an object of the list's kind that passes.
func some(c *env.Cluster, list client.ObjectList, count func() int, options ...client.ListOption) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.API.List(ctx, list, options...) == nil && count() > 0
}

func foreignClusters(c *env.Cluster, good func(discovery.ForeignCluster) bool) func() bool {
	return func() bool {
		var all discovery.ForeignClusterList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func slicesOf(c *env.Cluster, good func(sharing.ResourceSlice) bool) func() bool {
	return func() bool {
		var all sharing.ResourceSliceList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func configsOf(c *env.Cluster, good func(network.NetworkConfig) bool) func() bool {
	return func() bool {
		var all network.NetworkConfigList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func tunnelsOf(c *env.Cluster, good func(network.TunnelEndpoint) bool) func() bool {
	return func() bool {
		var all network.TunnelEndpointList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func namespaces(c *env.Cluster, good func(corev1.Namespace) bool) func() bool {
	return func() bool {
		var all corev1.NamespaceList
		return some(c, &all, func() int { return counted(all.Items, good) }, client.MatchingLabels{labels.TenantNamespace: "true"})
	}
}

func counted[T any](items []T, good func(T) bool) (n int) {
	for _, item := range items {
		if good(item) {
			n++
		}
	}
	return n
}

func any1[T any](T) bool { return true }

func not(seen func() bool) func() bool { return func() bool { return !seen() } }

// peerPoints are the steps of a peering, in order.
func peerPoints() []point {
	return []point{
		{"the foreign cluster is written", foreignClusters(rome, any1)},
		{"the consumer has a tenant namespace", namespaces(rome, any1)},
		{"the consumer has a slice", slicesOf(rome, any1)},
		{"the provider has pinned the key", func() bool {
			var all corev1.ConfigMapList
			return some(milan, &all, func() int { return len(all.Items) }, client.InNamespace("liqo"), client.MatchingLabels{labels.PinnedKey: "true"})
		}},
		{"the provider has a tenant namespace", namespaces(milan, any1)},
		{"the consumer holds an identity", func() bool {
			var all corev1.SecretList
			return some(rome, &all, func() int { return len(all.Items) }, client.MatchingLabels{labels.LocalIdentity: "true"})
		}},
		{"the provider has the slice", slicesOf(milan, any1)},
		{"the provider has granted", slicesOf(milan, func(s sharing.ResourceSlice) bool { return s.Status.Phase == sharing.SliceAccepted })},
		{"the provider knows the consumer's network", configsOf(milan, func(one network.NetworkConfig) bool { return one.Labels[labels.Replicated] == "true" })},
		{"the tunnel is agreed", tunnelsOf(rome, any1)},
		{"the node exists", func() bool { node, err := rome.VirtualNode(milan); return err == nil && node.Name != "" }},
	}
}

// unpeerPoints are the steps of taking it down.
func unpeerPoints() []point {
	return []point{
		{"the peering is disabled", foreignClusters(rome, func(fc discovery.ForeignCluster) bool { return fc.Spec.OutgoingPeeringEnabled == discovery.PeeringNo })},
		{"the slice is being deleted", slicesOf(rome, func(s sharing.ResourceSlice) bool { return s.DeletionTimestamp != nil })},
		{"the tunnel is being deleted or gone", not(tunnelsOf(rome, func(one network.TunnelEndpoint) bool { return one.DeletionTimestamp == nil }))},
		{"the node is gone", func() bool { _, err := rome.VirtualNode(milan); return err != nil }},
		{"the provider's slice is being deleted or gone", not(slicesOf(milan, func(s sharing.ResourceSlice) bool { return s.DeletionTimestamp == nil }))},
		{
			"the provider's foreign cluster is being deleted or gone",
			not(foreignClusters(milan, func(fc discovery.ForeignCluster) bool { return fc.DeletionTimestamp == nil })),
		},
		{"the provider's tenant is being deleted or gone", not(namespaces(milan, func(ns corev1.Namespace) bool { return ns.DeletionTimestamp == nil }))},
		{"the consumer's slice is gone", not(slicesOf(rome, any1))},
	}
}

// fault breaks something that recovers without help.
type fault struct {
	name  string
	apply func(t *testing.T)
}

// providerDown takes the provider's API server away without a warning; it is back after some seconds.
func providerDown() fault {
	return fault{"provider's API server killed", func(t *testing.T) { clusters.Do(t, "component", "kill", milan.Name, "kube-apiserver") }}
}

// pause lets time pass: it is what is measured or swept here, nothing is waited for.
func pause(d time.Duration) { <-time.After(d) }

// managersKilled kills the controller managers of both clusters at once.
func managersKilled() fault {
	return fault{"controller managers killed", func(t *testing.T) {
		for _, c := range both() {
			result := c.TryKubectl("", "-n", "liqo", "delete", "pods", "-l", "app.kubernetes.io/name=controller-manager", "--grace-period=0", "--force", "--wait=false")
			if result.Code != 0 {
				t.Error(result)
			}
		}
	}}
}

// during runs liqoctl in rome, lets the fault happen once the point is reached, and wants success all the same.
func during(t *testing.T, p point, f fault, args ...string) {
	t.Helper()
	done := make(chan execution.Result, 1)
	go func() { done <- rome.TryLiqoctl(args...) }()
	// Watches that an API server dropped are made again up to a minute after it is back, by Kubernetes' own libraries.
	deadline := time.Now().Add(150 * time.Second)
	for !p.seen() && time.Now().Before(deadline) {
		pause(2 * time.Millisecond)
	}
	reached := time.Now().Before(deadline)
	f.apply(t)
	result := <-done
	if !reached {
		t.Errorf("the point was never reached: %s", p.name)
	}
	if result.Code != 0 {
		rome.Show(t)
		milan.Show(t)
		t.Fatalf("although the fault is over: %s", result)
	}
}

// faultsAtEachStep: whatever stops at whatever step, peering and unpeering end well once it is back.
func faultsAtEachStep(t *testing.T) {
	clusters.NeedsPlayground(t, "faults")
	before := map[*env.Cluster][]string{rome: rome.Everything(t), milan: milan.Everything(t)}
	for _, f := range []fault{providerDown(), managersKilled()} {
		peers, unpeers := peerPoints(), unpeerPoints()
		for i := range max(len(peers), len(unpeers)) {
			up, down := peers[min(i, len(peers)-1)], unpeers[min(i, len(unpeers)-1)]
			t.Run(fmt.Sprintf("%s/%d", f.name, i+1), func(t *testing.T) {
				t.Logf("peer: %s; unpeer: %s", up.name, down.name)
				for _, c := range both() {
					env.Healthy(t, c)
					env.Settled(t, c)
				}
				during(t, up, f, append(milan.PeerCommand(t), "--timeout", "200s")...)
				rome.NodeReady(t, milan)
				during(t, down, f, "unpeer", "out-of-band", milan.Name, "--timeout", "150s")
				// Who empties a namespace in Kubernetes notices up to a minute late that the API server is back.
				rome.NothingNew(t, before[rome], env.Hang)
				milan.NothingNew(t, before[milan], env.Hang)
			})
			if t.Failed() {
				env.Unpeered(t, rome, milan)
			}
		}
	}
}

// authPodDeleted: the authentication service restarts while a peering is made.
func authPodDeleted(t *testing.T) {
	result := milan.TryKubectl("", "-n", "liqo", "delete", "pods", "-l", "app.kubernetes.io/name=auth", "--grace-period=0", "--force", "--wait=false")
	if result.Code != 0 {
		t.Fatal(result)
	}
	env.Eventually(t, env.Hang, "peering works although the authentication service restarted", func() (string, bool) {
		result := rome.TryLiqoctl(append(milan.PeerCommand(t), "--timeout", "60s")...)
		return result.String(), result.Code == 0
	})
	rome.NodeReady(t, milan)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
}

// deadProvider: the provider does not come back while the consumer takes the peering down.
func deadProvider(t *testing.T) {
	clusters.NeedsPlayground(t, "faults")
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprintf("force %t", force), func(t *testing.T) {
			before := rome.Everything(t)
			there := milan.Everything(t)
			rome.Peer(t, milan)
			clusters.Do(t, "component", "stop", milan.Name, "kube-apiserver")
			args := []string{"unpeer", "out-of-band", milan.Name}
			if force {
				args = append(args, "--force")
			}
			result := rome.TryLiqoctl(args...)
			clusters.Measure(fmt.Sprintf("unpeer of a dead provider, force %t", force), "%.1f s", result.Took.Seconds())
			if result.Code != 0 {
				rome.Show(t)
				t.Errorf("want success: %s", result)
			}
			rome.NothingNew(t, before, env.Hang)
			clusters.Do(t, "component", "start", milan.Name, "kube-apiserver")
			// After a minute without API server, the watches of Kubernetes' own components and ours come back
			// with delays that have grown to half a minute each.
			if force {
				env.Eventually(t, env.Hang, "milan works again and forgets rome", func() (string, bool) {
					result := milan.TryLiqoctl("unpeer", "out-of-band", rome.Name, "--force", "--timeout", "20s")
					return result.String(), result.Code == 0 || milan.Foreign(t, rome) == nil
				})
				milan.NothingNew(t, there, env.Hang)
			}
			// Objects left at the provider are adopted by the next peering.
			env.Healthy(t, milan)
			env.Eventually(t, env.Hang, "peering works again", func() (string, bool) {
				result := rome.TryLiqoctl(append(milan.PeerCommand(t), "--timeout", "60s")...)
				return result.String(), result.Code == 0
			})
			rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
			rome.NothingNew(t, before, env.Hang)
			milan.NothingNew(t, there, env.Hang) // as above: Kubernetes notices up to a minute late
		})
	}
}
