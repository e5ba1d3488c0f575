// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		{
			"the other one", time.Second,
			[]string{"b0", "b1"},
			map[string]string{"previousKey.0": "a0 2026-01-01T00:00:02Z", "previousKey.1": "a1 2026-01-01T00:00:04Z"},
		},
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
