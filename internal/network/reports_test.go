// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
)

// TestReached: reports count once for each network, with the nodes; those of nodes that do not exist, of virtual nodes, and of networks of this cluster do not.
func TestReached(t *testing.T) {
	node := func(name string) corev1.Node { return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	virtual := node("liqo-milan")
	virtual.Labels = map[string]string{labels.Type: labels.TypeVirtualNode}
	report := func(name string, networks ...netv1alpha1.NodeNetwork) netv1alpha1.NodeReport {
		return netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1alpha1.NodeReportSpec{Networks: networks}}
	}
	docker := netv1alpha1.NodeNetwork{CIDR: "172.17.0.0/16", Kind: netv1alpha1.NodeNetworkLink, Link: "docker0"}
	lan := netv1alpha1.NodeNetwork{CIDR: "10.0.0.0/8", Kind: netv1alpha1.NodeNetworkRoute}
	pods := netv1alpha1.NodeNetwork{CIDR: "10.200.1.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "cni0"}
	nonsense := netv1alpha1.NodeNetwork{CIDR: "0.0.0.0/0", Kind: netv1alpha1.NodeNetworkRoute}
	own := []ipam.Use{{Name: "pod network", Network: netip.MustParsePrefix("10.200.0.0/16")}, {Name: ipam.ReservedName, Network: netip.MustParsePrefix("172.16.0.0/12")}}
	got := reached([]netv1alpha1.NodeReport{
		report("n2", docker, lan), report("n1", docker, pods, nonsense), report("gone", netv1alpha1.NodeNetwork{CIDR: "10.9.0.0/16"}), report("liqo-milan", lan),
	}, []corev1.Node{node("n1"), node("n2"), virtual}, own)
	if text := fmt.Sprint(got); text != "[{node n2 by a route 10.0.0.0/8} {nodes n1, n2 by its link docker0 172.17.0.0/16}]" {
		t.Error(text)
	}
	if text := describeReached(append(got, got...)); text != "10.0.0.0/8 (node n2 by a route), 172.17.0.0/16 (nodes n1, n2 by its link docker0), 10.0.0.0/8 (node n2 by a route), 1 more" {
		t.Error(text)
	}
}

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
		"nothing there":                   {[]string{"10.50.0.0/16"}, nil, "None", "10.51.0.0/16", ""},
		"remapped, and not written":       {nil, nil, "242.1.0.0/16", "10.50.9.0/24", ""},
		"written, and remapped for it":    {[]string{"10.50.0.0/16"}, nil, "242.1.0.0/16", "10.50.9.0/24", "10.50.0.0/16 of the peer is remapped to 242.1.0.0/16, because nodes of this cluster reach 10.50.9.0/24 (node n1 by a route); to lead it"},
		"written, in use, reached later":  {[]string{"10.50.0.0/16"}, nil, "None", "10.0.0.0/8", "10.50.0.0/16 leads to the peer, and nodes of this cluster reach 10.0.0.0/8 (node n1 by a route) since; remove that from the nodes, or, if it is to lead to the peer, list it"},
		"forced":                          {nil, []string{"10.50.0.0/16"}, "None", "10.0.0.0/8", ""},
		"remapped into what is reached":   {nil, nil, "242.1.0.0/16", "242.1.2.0/24", "242.1.0.0/16 leads to the peer, and nodes of this cluster reach 242.1.2.0/24 (node n1 by a route) since; remove that"},
		"forced, remapped, reached there": {nil, []string{"10.50.0.0/16"}, "242.1.0.0/16", "242.1.2.0/24", "remove that from the nodes"},
	} {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{
			Network: &discoveryv1alpha1.PeerNetwork{PodCIDRs: row.written, ForcedCIDRs: row.forced},
		}}
		w := words{peers: map[string]*discoveryv1alpha1.ForeignCluster{"ns": fc}}
		spec := &netv1alpha1.TunnelEndpointSpec{RemotePodCIDR: "10.50.0.0/16", RemoteNATPodCIDR: row.nat, RemoteExternalCIDR: "242.9.0.0/16", RemoteNATExternalCIDR: "None"}
		if got := w.conflicts("ns", spec, reach(row.reached)); !strings.Contains(got, row.want) || row.want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
