// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	sharing "liqo.io/liqo/apis/sharing/v1alpha1"
)

// point is a moment on the way of rome's peering with milan, as an outsider can see it.
type point struct {
	name string
	seen func() bool
}

// some tells whether the cluster has an object of the list's kind that passes.
func some(c *cluster, list client.ObjectList, count func() int, options ...client.ListOption) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.api.List(ctx, list, options...) == nil && count() > 0
}

func foreignClusters(c *cluster, good func(discovery.ForeignCluster) bool) func() bool {
	return func() bool {
		var all discovery.ForeignClusterList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func slicesOf(c *cluster, good func(sharing.ResourceSlice) bool) func() bool {
	return func() bool {
		var all sharing.ResourceSliceList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func configsOf(c *cluster, good func(network.NetworkConfig) bool) func() bool {
	return func() bool {
		var all network.NetworkConfigList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func tunnelsOf(c *cluster, good func(network.TunnelEndpoint) bool) func() bool {
	return func() bool {
		var all network.TunnelEndpointList
		return some(c, &all, func() int { return counted(all.Items, good) })
	}
}

func namespaces(c *cluster, good func(corev1.Namespace) bool) func() bool {
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
		{"the node exists", func() bool { node, err := rome.node(milan); return err == nil && node.Name != "" }},
	}
}

// unpeerPoints are the steps of taking it down.
func unpeerPoints() []point {
	return []point{
		{"the wish is written", foreignClusters(rome, func(fc discovery.ForeignCluster) bool { return fc.Spec.OutgoingPeeringEnabled == discovery.PeeringNo })},
		{"the slice is being deleted", slicesOf(rome, func(s sharing.ResourceSlice) bool { return s.DeletionTimestamp != nil })},
		{"the tunnel is being deleted or gone", not(tunnelsOf(rome, func(one network.TunnelEndpoint) bool { return one.DeletionTimestamp == nil }))},
		{"the node is gone", func() bool { _, err := rome.node(milan); return err != nil }},
		{"the provider's slice is being deleted or gone", not(slicesOf(milan, func(s sharing.ResourceSlice) bool { return s.DeletionTimestamp == nil }))},
		{"the provider's foreign cluster is being deleted or gone", not(foreignClusters(milan, func(fc discovery.ForeignCluster) bool { return fc.DeletionTimestamp == nil }))},
		{"the provider's tenant is being deleted or gone", not(namespaces(milan, func(ns corev1.Namespace) bool { return ns.DeletionTimestamp == nil }))},
		{"the consumer's slice is gone", not(slicesOf(rome, any1))},
	}
}

// fault is something that goes wrong and comes back by itself.
type fault struct {
	name  string
	apply func(t testing.TB)
}

func must(t testing.TB, args ...string) {
	t.Helper()
	if said := playground(args...); said.code != 0 {
		t.Error(said)
	}
}

// providerDown takes the provider's API server away without a warning; it is back after some seconds.
func providerDown() fault {
	return fault{"provider's API server killed", func(t testing.TB) { must(t, "component", "kill", milan.Name, "kube-apiserver") }}
}

// pause lets time pass: it is what is measured or swept here, nothing is waited for.
func pause(d time.Duration) { <-time.After(d) }

// managersKilled kills the controller managers of both clusters at once.
func managersKilled() fault {
	return fault{"controller managers killed", func(t testing.TB) {
		for _, c := range []*cluster{rome, milan} {
			said := c.tryKubectl("", "-n", "liqo", "delete", "pods", "-l", "app.kubernetes.io/name=controller-manager", "--grace-period=0", "--force", "--wait=false")
			if said.code != 0 {
				t.Error(said)
			}
		}
	}}
}

// during runs liqoctl in rome, lets the fault happen once the point is reached, and wants success all the same.
func during(t *testing.T, p point, f fault, args ...string) {
	t.Helper()
	done := make(chan result, 1)
	go func() { done <- rome.try(args...) }()
	// Watches that an API server dropped are made again up to a minute after it is back, by Kubernetes' own libraries.
	deadline := time.Now().Add(150 * time.Second)
	for !p.seen() && time.Now().Before(deadline) {
		pause(2 * time.Millisecond)
	}
	reached := time.Now().Before(deadline)
	f.apply(t)
	said := <-done
	if !reached {
		t.Errorf("the point was never reached: %s", p.name)
	}
	if said.code != 0 {
		rome.show(t)
		milan.show(t)
		t.Fatalf("although the fault is over: %s", said)
	}
}

// healthy waits until the cluster's Liqo works again: a status may date from before a fault, an answer does not.
func healthy(t testing.TB, c *cluster) {
	t.Helper()
	insecure := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // its certificate is its own
	}}
	eventually(t, 90*time.Second, "the control plane of "+c.Name+" works", func() (string, bool) {
		if said := c.try("status"); said.code != 0 {
			return said.String(), false
		}
		said := c.try("generate", "peer-command", "--only-command")
		words := strings.Fields(said.out)
		i := slices.Index(words, "--auth-url")
		if said.code != 0 || i < 0 {
			return said.String(), false
		}
		answer, err := insecure.Get(words[i+1] + "/ids")
		if err != nil {
			return err.Error(), false
		}
		answer.Body.Close()
		return answer.Status, answer.StatusCode == http.StatusOK
	})
}

// settled waits until all namespaces of peerings are gone: one that is still going would be waited for by the next peering.
func settled(t testing.TB, c *cluster) {
	t.Helper()
	eventually(t, 60*time.Second, "no tenant namespace is left in "+c.Name, func() (string, bool) {
		left := c.tenants(t)
		return strings.Join(left, " "), len(left) == 0
	})
}

// faultsAtEachStep: whatever stops at whatever step, peering and unpeering end well once it is back.
func faultsAtEachStep(t *testing.T) {
	before := map[*cluster][]string{rome: rome.objects(t), milan: milan.objects(t)}
	for _, f := range []fault{providerDown(), managersKilled()} {
		peers, unpeers := peerPoints(), unpeerPoints()
		for i := range max(len(peers), len(unpeers)) {
			up, down := peers[min(i, len(peers)-1)], unpeers[min(i, len(unpeers)-1)]
			t.Run(fmt.Sprintf("%s/%d", f.name, i+1), func(t *testing.T) {
				t.Logf("peer: %s; unpeer: %s", up.name, down.name)
				for _, c := range []*cluster{rome, milan} {
					healthy(t, c)
					settled(t, c)
				}
				during(t, up, f, append(milan.peerCommand(t), "--timeout", "200s")...)
				rome.nodeReady(t, milan, 60*time.Second)
				during(t, down, f, "unpeer", "out-of-band", milan.Name, "--timeout", "150s")
				// Who empties a namespace in Kubernetes notices up to a minute late that the API server is back.
				rome.nothingNew(t, before[rome], 100*time.Second)
				milan.nothingNew(t, before[milan], 100*time.Second)
			})
			if t.Failed() {
				unpeered(t)
			}
		}
	}
}

// authPodDeleted: the authentication service restarts while a peering is made.
func authPodDeleted(t *testing.T) {
	said := milan.tryKubectl("", "-n", "liqo", "delete", "pods", "-l", "app.kubernetes.io/name=auth", "--grace-period=0", "--force", "--wait=false")
	if said.code != 0 {
		t.Fatal(said)
	}
	eventually(t, 60*time.Second, "peering works although the authentication service restarted", func() (string, bool) {
		said := rome.try(append(milan.peerCommand(t), "--timeout", "60s")...)
		return said.String(), said.code == 0
	})
	rome.nodeReady(t, milan, 10*time.Second)
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
}

// deadProvider: the provider does not come back while the consumer takes the peering down.
func deadProvider(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprintf("force %t", force), func(t *testing.T) {
			before := rome.objects(t)
			there := milan.objects(t)
			rome.peer(t, milan)
			must(t, "component", "stop", milan.Name, "kube-apiserver")
			args := []string{"unpeer", "out-of-band", milan.Name}
			if force {
				args = append(args, "--force")
			}
			said := rome.try(args...)
			measure(fmt.Sprintf("unpeer of a dead provider, force %t", force), "%.1f s", said.took.Seconds())
			if said.code != 0 || said.took > 60*time.Second {
				rome.show(t)
				t.Errorf("want success within 60 s: %s", said)
			}
			rome.nothingNew(t, before, 30*time.Second)
			must(t, "component", "start", milan.Name, "kube-apiserver")
			// After a minute without API server, the watches of Kubernetes' own components and ours come back
			// with delays that have grown to half a minute each.
			if force {
				eventually(t, 4*time.Minute, "milan works again and forgets rome", func() (string, bool) {
					said := milan.try("unpeer", "out-of-band", rome.Name, "--force", "--timeout", "20s")
					return said.String(), said.code == 0 || milan.foreign(t, rome) == nil
				})
				milan.nothingNew(t, there, 60*time.Second)
			}
			// What is left over there if nobody took it away is taken up again.
			healthy(t, milan)
			eventually(t, 2*time.Minute, "peering works again", func() (string, bool) {
				said := rome.try(append(milan.peerCommand(t), "--timeout", "60s")...)
				return said.String(), said.code == 0
			})
			rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
			rome.nothingNew(t, before, 30*time.Second)
			milan.nothingNew(t, there, 100*time.Second) // as above: Kubernetes notices up to a minute late
		})
	}
}
