// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
)

// TestOverlapHint: what overlapping pod networks cost is reported where they do, and nowhere else.
func TestOverlapHint(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, local, remote string
		network             discoveryv1alpha1.PeeringConditionStatus
		peer                string // of the tunnel
		want                string // empty: no hint
	}{
		{"the same", "10.200.0.0/16", "10.200.0.0/16", "Established", actiontest.RemoteID, "overlap (10.200.0.0/16)"},
		{"one in the other", "10.200.0.0/16", "10.200.128.0/17", "Established", actiontest.RemoteID, "overlap (10.200.0.0/16 and 10.200.128.0/17)"},
		{"ours in theirs, and the tunnel not up", "10.200.7.0/24", "10.0.0.0/8", "Pending", actiontest.RemoteID, "overlap (10.200.7.0/24 and 10.0.0.0/8)"},
		{"different", "10.200.0.0/16", "10.201.0.0/16", "Established", actiontest.RemoteID, ""},
		{"neighbours", "10.200.0.0/17", "10.200.128.0/17", "Established", actiontest.RemoteID, ""},
		{"a network that is not Liqo's", "10.200.0.0/16", "10.200.0.0/16", "External", actiontest.RemoteID, ""},
		{"those of another peer", "10.200.0.0/16", "10.200.0.0/16", "Established", "33333333-3333-4333-8333-333333333333", ""},
		{"no network", "10.200.0.0/16", "", "Established", actiontest.RemoteID, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
			fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{actiontest.Condition(discoveryv1alpha1.NetworkStatus, test.network, "")}
			tunnel := &netv1alpha1.TunnelEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: netv1alpha1.TunnelEndpointSpec{
				ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: test.peer}, LocalPodCIDR: netv1alpha1.CIDR(test.local),
				RemotePodCIDR: netv1alpha1.CIDR(test.remote),
			}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects([]client.Object{fc, tunnel}...).Build()
			lines := &actiontest.Recorder{}
			HintOverlap(t.Context(), c, "milan", lines)
			text := lines.Text()
			if test.want == "" {
				if text != "" {
					t.Errorf("a hint:\n%s", text)
				}
				return
			}
			if len(lines.Lines) != 2 || strings.Contains(text, "WARN") {
				t.Errorf("%d lines:\n%s", len(lines.Lines), text)
			}
			for _, want := range []string{test.want, "MariaDB Galera", "--keep-networks", "networkManager.config.unmappedNetworks"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
	lines := &actiontest.Recorder{}
	HintOverlap(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build(), "milan", lines)
	if lines.Text() != "" {
		t.Errorf("an unknown cluster: %s", lines.Text())
	}
}
