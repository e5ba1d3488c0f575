// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

func TestPreviousKeys(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var before *netv1alpha1.TunnelEndpoint
	for _, step := range []struct {
		what  string
		after time.Duration
		keys  []string
		want  map[string]string
	}{
		{"a new tunnel", 0, []string{"a0", "a1"}, map[string]string{}},
		{"nothing new", time.Second, []string{"a0", "a1"}, map[string]string{}},
		{"one lane changes", time.Second, []string{"b0", "a1"}, map[string]string{"previousKey.0": "a0 2026-01-01T00:00:02Z"}},
		{"it stays", time.Second, []string{"b0", "a1"}, map[string]string{"previousKey.0": "a0 2026-01-01T00:00:02Z"}},
		{"the other one", time.Second, []string{"b0", "b1"}, map[string]string{"previousKey.0": "a0 2026-01-01T00:00:02Z", "previousKey.1": "a1 2026-01-01T00:00:04Z"}},
		{"back again", time.Second, []string{"a0", "b1"}, map[string]string{"previousKey.0": "b0 2026-01-01T00:00:05Z", "previousKey.1": "a1 2026-01-01T00:00:04Z"}},
		{"a lane less", time.Second, []string{"a0"}, map[string]string{"previousKey.0": "b0 2026-01-01T00:00:05Z"}},
		{"much later", previousFor, []string{"a0"}, map[string]string{}},
	} {
		now = now.Add(step.after)
		var lanes []netv1alpha1.Lane
		for i, key := range step.keys {
			lanes = append(lanes, netv1alpha1.Lane{Number: int32(i), PublicKey: key})
		}
		got := previousKeys(before, lanes, now)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
		before = &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{Lanes: lanes, BackendConfig: got}}
	}
}

// After a peer changed its key, the tunnel holds the new key and the previous one, and nothing is written twice.
func TestPreviousKeyIsPublished(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	if key, _, ok := milan.tunnel.Spec.PreviousKey(0); ok {
		t.Errorf("a new tunnel has the previous key %s", key)
	}
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].PublicKey = testKey(3) })
	b.Until("the new key is there, with the one before", func() bool {
		b.Read(milan.tunnel)
		key, until, ok := milan.tunnel.Spec.PreviousKey(0)
		return milan.tunnel.Spec.Lanes[0].PublicKey == testKey(3) && ok && key == testKey(1) && time.Since(until) < time.Minute
	})
	b.expectNoWrites("after that", time.Second)
}
