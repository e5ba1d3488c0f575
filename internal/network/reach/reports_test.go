// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
)

// TestReported: reports count once for each network, with the nodes; those of nodes that do not exist, of virtual nodes, and of networks of this
// cluster do not.
func TestReported(t *testing.T) {
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
	own := []ipam.Use{
		{Name: "pod network", Network: netip.MustParsePrefix("10.200.0.0/16")},
		{Name: ipam.ReservedName, Network: netip.MustParsePrefix("172.16.0.0/12")},
	}
	got := Reported([]netv1alpha1.NodeReport{
		report("n2", docker, lan), report("n1", docker, pods, nonsense), report("gone", netv1alpha1.NodeNetwork{CIDR: "10.9.0.0/16"}), report("liqo-milan", lan),
	}, []corev1.Node{node("n1"), node("n2"), virtual}, own)
	if text := fmt.Sprint(got); text != "[{node n2 by a route 10.0.0.0/8} {nodes n1, n2 by its link docker0 172.17.0.0/16}]" {
		t.Error(text)
	}
	if text := Describe(slices.Concat(got, got, got)); text != "10.0.0.0/8 (node n2 by a route), 172.17.0.0/16 (nodes n1, n2 by its link "+
		"docker0), 10.0.0.0/8 (node n2 by a route), 172.17.0.0/16 (nodes n1, n2 by its link docker0), 2 more" {
		t.Error(text)
	}
}
