// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestFamilies: fields and rows of all three objects state the same. A peer of an earlier version states fields only, and one that states two things
// is refused, while what was agreed stays.
func TestFamilies(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.40.0.0/16", 1) // as an earlier version
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	b.Read(milan.ours)
	if own := milan.ours.Spec; !slices.Equal(own.Networks, []netv1alpha1.Networks{{PodCIDR: own.PodCIDR, ExternalCIDR: own.ExternalCIDR}}) {
		t.Errorf("published %+v", own)
	}
	b.Read(milan.copy)
	if now := milan.copy.Status; !slices.Equal(now.Networks, []netv1alpha1.NetworksNAT{{PodCIDRNAT: now.PodCIDRNAT, ExternalCIDRNAT: now.ExternalCIDRNAT}}) {
		t.Errorf("answered %+v", now)
	}
	fields := milan.tunnel.Spec.DeepCopy()
	if fields.Networks = nil; len(milan.tunnel.Spec.Networks) != 1 || !slices.Equal(milan.tunnel.Spec.Networks, fields.Rows()) {
		t.Errorf("agreed %+v", milan.tunnel.Spec)
	}

	agreed := milan.tunnel.Spec.DeepCopy()
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) {
		to.SetRows([]netv1alpha1.Networks{{PodCIDR: "10.202.0.0/16", ExternalCIDR: "10.40.0.0/16"}, {PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}})
		to.PodCIDR = "10.201.0.0/16" // and both are signed
	})
	milan.decided(netv1alpha1.ReasonNetworkInvalid, "is not what podCIDR and externalCIDR are")
	if b.Read(milan.tunnel); !equality.Semantic.DeepEqual(*agreed, milan.tunnel.Spec) {
		t.Errorf("after a peer has stated two things: %+v", milan.tunnel.Spec)
	}
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) {
		to.SetRows([]netv1alpha1.Networks{{PodCIDR: "10.201.0.0/16", ExternalCIDR: "10.40.0.0/16"}, {PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}})
	})
	milan.decided(netv1alpha1.ReasonAgreed, "")
}
