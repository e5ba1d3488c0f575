// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tenants"
)

// TestConflicts: what an administrator reads about networks of a peer that nodes reach as well.
func TestConflicts(t *testing.T) {
	reach := func(network string) []ipam.Use {
		return []ipam.Use{{Name: "node n1 by a route", Network: netip.MustParsePrefix(network)}}
	}
	for name, row := range map[string]struct {
		written, forced []string
		nat, reached    string
		want            string
	}{
		"nothing there":             {[]string{"10.50.0.0/16"}, nil, "None", "10.51.0.0/16", ""},
		"remapped, and not written": {nil, nil, "242.1.0.0/16", "10.50.9.0/24", ""},
		"written, and remapped for it": {
			[]string{"10.50.0.0/16"},
			nil, "242.1.0.0/16", "10.50.9.0/24",
			"10.50.0.0/16 of the peer is remapped to 242.1.0.0/16, because nodes of this cluster reach 10.50.9.0/24 (node n1 by a route); to lead it",
		},
		"written, in use, reached later": {[]string{"10.50.0.0/16"}, nil, "None", "10.0.0.0/8", "10.50.0.0/16 leads to the peer, and nodes of " +
			"this cluster reach 10.0.0.0/8 (node n1 by a route) since; remove that from the nodes, or, if it is to lead to the peer, list it"},
		"forced": {nil, []string{"10.50.0.0/16"}, "None", "10.0.0.0/8", ""},
		"remapped into what is reached": {
			nil, nil, "242.1.0.0/16", "242.1.2.0/24",
			"242.1.0.0/16 leads to the peer, and nodes of this cluster reach 242.1.2.0/24 (node n1 by a route) since; remove that",
		},
		"forced, remapped, reached there": {nil, []string{"10.50.0.0/16"}, "242.1.0.0/16", "242.1.2.0/24", "remove that from the nodes"},
	} {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
			Network: &discoveryv1alpha1.PeerNetwork{PodCIDRs: row.written, ForcedCIDRs: row.forced},
		}}
		w := new(pools.Reader).WordsFor(&tenants.Tenant{FC: fc, Namespace: "ns"})
		spec := &netv1alpha1.TunnelEndpointSpec{
			RemotePodCIDR: "10.50.0.0/16", RemoteNATPodCIDR: row.nat, RemoteExternalCIDR: "242.9.0.0/16", RemoteNATExternalCIDR: "None",
		}
		if got := conflicts(w, "ns", spec, reach(row.reached)); !strings.Contains(got, row.want) || row.want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
