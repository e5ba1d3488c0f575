// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
)

// TestNames: short names are the documented ones; a name of up to 63 characters still gives DNS-1123 labels that differ between clusters.
func TestNames(t *testing.T) {
	const id, hash = "11111111-2222-4333-8444-555555555555", "cf4c47"
	m := func(length int) string { return strings.Repeat("m", length) }
	for _, c := range []struct{ name, unique, node string }{
		{"milan", "milan-" + hash, "liqo-milan"},
		{m(44), m(44) + "-" + hash, "liqo-" + m(44)},
		{m(45), m(44) + "-" + hash, "liqo-" + m(45)},
		{m(43) + "-x", m(43) + "-" + hash, "liqo-" + m(43) + "-x"},
		{m(58), m(44) + "-" + hash, "liqo-" + m(58)},
		{m(59), m(44) + "-" + hash, "liqo-" + m(44) + "-" + hash},
		{m(63), m(44) + "-" + hash, "liqo-" + m(44) + "-" + hash},
	} {
		identity := ClusterIdentity{ClusterID: id, ClusterName: c.name}
		if have := identity.UniqueName(); have != c.unique {
			t.Errorf("%s: unique name %s, want %s", c.name, have, c.unique)
		}
		if have := identity.TenantNamespace(); have != "liqo-tenant-"+c.unique || len(have) > 63 {
			t.Errorf("%s: tenant namespace %s has %d characters", c.name, have, len(have))
		}
		if have := identity.NodeName(); have != c.node || len(have) > 63 {
			t.Errorf("%s: node %s, want %s", c.name, have, c.node)
		}
	}
	one, other := ClusterIdentity{id, m(63)}, ClusterIdentity{"22222222-2222-4333-8444-555555555555", m(63)}
	if one.UniqueName() == other.UniqueName() || one.TenantNamespace() == other.TenantNamespace() || one.NodeName() == other.NodeName() {
		t.Errorf("two clusters with the same name share a name: %s", other.UniqueName())
	}
}
