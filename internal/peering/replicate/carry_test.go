// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"testing"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/peering/replicate/carry"
)

// TestCarryNetwork: without a connection, a NetworkConfig is carried to the other cluster, and the answer back; the connection that follows writes nothing.
func TestCarryNetwork(t *testing.T) {
	b := newEnv(t)
	here, there := carry.End{Client: b.here, ID: b.origin, Namespace: b.name}, carry.End{Client: b.there, ID: b.provider, Namespace: b.name}
	ctx, ours, theirs := t.Context(), "network-"+b.origin, "network-"+b.provider
	b.must(carry.Network(ctx, here, there)) // there is nothing yet
	b.publish(b.here, ours, b.provider)
	b.publish(b.there, theirs, b.origin)
	b.publish(b.there, "network-of-another", "another")
	for range 2 { // again, and nothing changes
		b.must(errors.Join(carry.Network(ctx, here, there), carry.Network(ctx, there, here)))
	}
	copied := b.config(b.there, ours)
	if copied == nil || copied.Spec.PodCIDR != "10.200.0.0/16" || len(copied.Spec.Lanes) != 2 || copied.Labels[labels.Replicated] != "true" ||
		copied.Labels[labels.OriginID] != b.origin || copied.Labels[labels.ClusterID] != b.origin || copied.Generation != 1 {
		t.Fatalf("the copy is %+v", copied)
	}
	if b.config(b.here, "network-of-another") != nil {
		t.Error("the network for another cluster was carried as well")
	}
	b.answer(b.there, ours, "10.9.0.0/16")
	b.must(carry.Network(ctx, here, there))
	answered := b.config(b.here, ours)
	if !answered.Status.Processed || answered.Status.PodCIDRNAT != "10.9.0.0/16" || answered.Status.ObservedGeneration != answered.Generation {
		t.Fatalf("the answer is %+v", answered.Status)
	}

	// A change, whose answer is still that to the network before.
	answered.Spec.EndpointIP = "192.0.2.8"
	b.must(b.here.Update(ctx, answered))
	b.must(carry.Network(ctx, here, there))
	if copied = b.config(b.there, ours); copied.Spec.EndpointIP != "192.0.2.8" {
		t.Errorf("the copy has the address %s", copied.Spec.EndpointIP)
	}
	if answered = b.config(b.here, ours); answered.Status.ObservedGeneration == answered.Generation {
		t.Error("the answer to another network was brought")
	}
	b.answer(b.there, ours, "10.9.0.0/16")
	b.must(carry.Network(ctx, here, there))

	before := map[string]string{
		"copy": b.config(b.there, ours).ResourceVersion, "original": b.config(b.here, ours).ResourceVersion,
		"theirs": b.config(b.here, theirs).ResourceVersion,
	}
	b.start()
	b.connect(b.peer(""))
	b.ready()
	b.settled("networkconfigs")
	after := map[string]string{
		"copy": b.config(b.there, ours).ResourceVersion, "original": b.config(b.here, ours).ResourceVersion,
		"theirs": b.config(b.here, theirs).ResourceVersion,
	}
	for what := range before {
		if before[what] != after[what] {
			t.Errorf("the connection wrote the %s again", what)
		}
	}
}
