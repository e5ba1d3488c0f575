// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	network "liqo.io/liqo/apis/net/v1alpha1"
	sharing "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/test/env"
)

// milestones are moments of a peering, as watches of both clusters see them, in the order they are shown.
var milestones = []string{
	"foreign cluster", "slice", "kubelet pod", "key pinned", "identity", "slice at provider", "granted",
	"grant at consumer", "network published", "tunnel agreed", "tunnel connected", "kubelet runs", "node", "node Ready", "command ends",
}

// clockwork notes when each milestone was first seen.
type clockwork struct {
	mu    sync.Mutex
	began time.Time
	at    map[string]time.Duration
}

func (c *clockwork) reached(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.at[name]; !known {
		c.at[name] = time.Since(c.began)
	}
}

// follow watches a kind and hands every object that is there or comes to see.
func follow(ctx context.Context, t testing.TB, c *env.Cluster, list client.ObjectList, see func(client.Object), options ...client.ListOption) {
	t.Helper()
	w, err := c.API.Watch(ctx, list, options...)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
				see(object)
			}
		}
	}()
}

// start begins to watch both clusters.
func (c *clockwork) start(ctx context.Context, t testing.TB) {
	t.Helper()
	follow(ctx, t, rome, &discovery.ForeignClusterList{}, func(client.Object) { c.reached("foreign cluster") })
	follow(ctx, t, rome, &sharing.ResourceSliceList{}, func(o client.Object) {
		c.reached("slice")
		if o.(*sharing.ResourceSlice).Status.Phase == sharing.SliceAccepted {
			c.reached("grant at consumer")
		}
	})
	follow(ctx, t, rome, &network.NetworkConfigList{}, func(client.Object) { c.reached("network published") })
	follow(ctx, t, rome, &network.TunnelEndpointList{}, func(o client.Object) {
		c.reached("tunnel agreed")
		if o.(*network.TunnelEndpoint).Status.Connection.Status == network.Connected {
			c.reached("tunnel connected")
		}
	})
	follow(ctx, t, rome, &corev1.PodList{}, func(o client.Object) {
		c.reached("kubelet pod")
		if o.(*corev1.Pod).Status.Phase == corev1.PodRunning {
			c.reached("kubelet runs")
		}
	}, client.MatchingLabels{labels.AppName: "virtual-kubelet"})
	follow(ctx, t, rome, &corev1.SecretList{}, func(o client.Object) {
		if len(o.(*corev1.Secret).Data["token"]) > 0 {
			c.reached("identity")
		}
	}, client.MatchingLabels{labels.LocalIdentity: "true"})
	follow(ctx, t, rome, &corev1.NodeList{}, func(o client.Object) {
		c.reached("node")
		if status, _ := env.Readiness(o.(*corev1.Node)); status == corev1.ConditionTrue {
			c.reached("node Ready")
		}
	}, client.MatchingLabels{labels.Type: labels.TypeVirtualNode})
	follow(ctx, t, milan, &corev1.ConfigMapList{}, func(client.Object) { c.reached("key pinned") }, client.MatchingLabels{labels.PinnedKey: "true"})
	follow(ctx, t, milan, &sharing.ResourceSliceList{}, func(o client.Object) {
		c.reached("slice at provider")
		if o.(*sharing.ResourceSlice).Status.Phase == sharing.SliceAccepted {
			c.reached("granted")
		}
	})
}

func median(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// speed measures peering and unpeering on idle clusters, with the split of the time.
func speed(t *testing.T) {
	const runs = 10
	at := map[string][]time.Duration{}
	var unpeer, gone []time.Duration
	for range runs {
		command := milan.PeerCommand(t)
		ctx, cancel := context.WithCancel(t.Context())
		clock := &clockwork{began: time.Now(), at: map[string]time.Duration{}}
		clock.start(ctx, t)
		clock.began = time.Now()
		rome.Liqoctl(t, command...)
		clock.reached("command ends")
		rome.NodeReady(t, milan)
		env.Eventually(t, env.Hang, "all milestones are seen", func() (string, bool) {
			clock.mu.Lock()
			defer clock.mu.Unlock()
			return fmt.Sprint(clock.at), len(clock.at) == len(milestones)
		})
		cancel()
		for name, when := range clock.at {
			at[name] = append(at[name], when)
		}
		start := time.Now()
		nodeGone := make(chan time.Duration, 1)
		go func() {
			for {
				if _, err := rome.VirtualNode(milan); err != nil || time.Since(start) > 30*time.Second {
					nodeGone <- time.Since(start)
					return
				}
				pause(5 * time.Millisecond)
			}
		}()
		result := rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
		unpeer = append(unpeer, result.Took)
		gone = append(gone, <-nodeGone)
		env.Settled(t, rome)
		env.Settled(t, milan)
	}
	for _, name := range milestones {
		clusters.Measure("peer: "+name, "median %4.0f ms (%.0f to %.0f, n=%d)", ms(median(at[name])), ms(slices.Min(at[name])), ms(slices.Max(at[name])), runs)
	}
	clusters.Measure("unpeer out-of-band: node gone", "median %4.0f ms (%.0f to %.0f)", ms(median(gone)), ms(slices.Min(gone)), ms(slices.Max(gone)))
	clusters.Measure("unpeer out-of-band: command ends", "median %4.0f ms (%.0f to %.0f)", ms(median(unpeer)), ms(slices.Min(unpeer)), ms(slices.Max(unpeer)))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
