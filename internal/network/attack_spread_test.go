// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/report"
)

// TestSpread: of two gateways that share a node for long, one is evicted once, but not while a lane is down.
func TestSpread(t *testing.T) {
	b := newBench(t)
	b.options.Spread.After = 500 * time.Millisecond
	b.node("n1", "192.0.2.1", true)
	second := b.node("n2", "192.0.2.2", true)
	b.Edit(second, func() { second.Spec.Unschedulable = true })
	first, other := b.gateway(0, "n1"), b.gateway(1, "n1")
	reports := func(g *gateway, up bool) {
		g.reports(func(r *report.Gateway) { r.Peers = []report.Peer{{ClusterID: "milan-id", Up: up}} })
	}
	reports(first, false)
	reports(other, true)
	b.run()
	stays := func(what string, during time.Duration) {
		t.Helper()
		b.expectNoWrites(what, during)
		for _, g := range []*gateway{first, other} {
			if b.Read(g.pod); g.pod.DeletionTimestamp != nil {
				t.Errorf("%s, and yet %s is evicted", what, g.pod.Name)
			}
		}
	}
	b.Until("keys are made", func() bool {
		return b.there(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: keyring.SecretName}})
	})
	stays("a lane is down and the node is cordoned", 2*time.Second)
	reports(first, true)
	stays("the node is cordoned", 2*time.Second)
	b.Edit(second, func() { second.Spec.Unschedulable, second.Spec.Taints = false, nil }) // a new node has the taint of one that is not Ready
	b.Until("one is evicted", func() bool { return !b.there(other.pod) || other.pod.DeletionTimestamp != nil })
	b.expectNoWrites("one is enough", 2*time.Second)
	if b.Read(first.pod); first.pod.DeletionTimestamp != nil {
		t.Error("both are evicted")
	}
}
