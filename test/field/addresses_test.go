// SPDX-License-Identifier: Apache-2.0

package field

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// networks returns the pod networks of rome and of milan, as the tunnel to milan has them, and that under which rome reaches milan's.
func networks(t *testing.T) (own, theirs netip.Prefix, remapped bool) {
	t.Helper()
	var tunnels netv1alpha1.TunnelEndpointList
	if err := rome.API.List(t.Context(), &tunnels); err != nil || len(tunnels.Items) != 1 {
		t.Fatalf("%d tunnels in rome: %v", len(tunnels.Items), err)
	}
	spec := &tunnels.Items[0].Spec
	return netip.MustParsePrefix(string(spec.LocalPodCIDR)), netip.MustParsePrefix(string(spec.RemotePodCIDR)), spec.RemoteNATPodCIDR != netv1alpha1.NotRemapped
}

// TestAddresses: addresses that a program reads from its API lead to the pods: at home all of them, in milan those of pods in milan, its own among
// them. The address of a pod at home is one of milan's in milan, because both clusters have the same network (ADR 44).
func TestAddresses(t *testing.T) {
	peered(t)
	own, theirs, remapped := networks(t)
	if !own.Overlaps(theirs) || !remapped {
		t.Fatalf("the networks %s and %s (remapped: %t) do not overlap: this proves nothing", own, theirs, remapped)
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := milan.API.List(t.Context(), &tunnels); err != nil || len(tunnels.Items) != 1 || tunnels.Items[0].Labels["net.liqo.io/shown"] != "true" {
		t.Fatalf("milan does not lead to its pods what rome shows as their addresses; was the peering agreed by an earlier version? %v, %+v", err, tunnels.Items)
	}
	s := play(t, "addresses")
	for double, want := range map[string]string{
		"home":   "near-a=ok near-a, near-b=ok near-b, far=ok far, home=ok home, remote=ok remote, ",
		"remote": "near-a=ok near-a, near-b=ok near-b, ",
	} {
		var last string
		env.Eventually(t, env.Hang, double+" reaches the pods at their addresses", func() (string, bool) {
			lines := strings.Split(strings.TrimSpace(rome.TryKubectl("", "-n", s.name, "logs", double, "--tail=1").Out), "\n")
			last = lines[len(lines)-1]
			good := strings.HasPrefix(last, want)
			if double == "remote" {
				_, file, _ := strings.Cut(last, ", file=")
				file, shown, _ := strings.Cut(file, ", shown=")
				good = good && strings.Contains(last, "remote=ok remote, ") && file == shown && file != ""
			}
			return fmt.Sprintf("%q", last), good
		})
		if double == "remote" && (strings.Contains(last, "far=ok far") || strings.Contains(last, "home=ok home")) {
			t.Errorf("a pod in milan reaches pods at home at their addresses (%s): ADR 44, docs/network.md and docs/offloading.md state that it does not", last)
		}
	}
}
