// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

func TestOwn(t *testing.T) {
	node := corev1.Node{
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.200.1.0/24", "x"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
		}},
	}
	got := Own([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, []corev1.Node{node})
	if want := "[10.96.0.0/16 10.200.1.0/24 192.0.2.1/32 fd00::1/128]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestOfTunnel(t *testing.T) {
	tunnel := &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{
		RemotePodCIDR: "10.200.0.0/16", RemoteNATPodCIDR: "10.1.0.0/16", RemoteExternalCIDR: "10.201.0.0/16", RemoteNATExternalCIDR: "None",
	}}
	got := OfTunnel(tunnel)
	if len(got) != 2 || got[0].String() != "10.1.0.0/16" || got[1].String() != "10.201.0.0/16" {
		t.Errorf("got %v", got)
	}
	if len(OfTunnel(nil))+len(OfTunnel(&netv1alpha1.TunnelEndpoint{})) > 0 {
		t.Error("networks of nothing")
	}
}
