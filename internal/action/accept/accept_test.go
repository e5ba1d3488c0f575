// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
)

// TestAcceptNetworks: only what the peer announces at this moment is accepted, and everything else is refused before anything is written.
func TestAcceptNetworks(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{netv1alpha1.AddToScheme, discoveryv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	id := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id}}
	milan.Status.TenantNamespace.Local = id.TenantNamespace()
	silent := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "silent"}}
	config := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.TenantNamespace(), Name: id.NetworkConfigName()},
		Spec:       netv1alpha1.NetworkConfigSpec{PodCIDR: "10.205.0.0/16", ExternalCIDR: "242.0.0.0/16"},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(milan, silent, config).Build()
	for _, row := range []struct {
		name     string
		networks []string
		refused  string
		accepted []string
	}{
		{"milan", []string{"10.205.0.1/16"}, "want networks such as", nil},
		{"milan", []string{"10.204.0.0/16"}, "is not what cluster \"milan\" announces now, which is 10.205.0.0/16 and 242.0.0.0/16", nil},
		{"milan", []string{"10.205.0.0/16", "10.0.0.0/30"}, "10.0.0.0/30 is not what", nil},
		{"turin", []string{"10.205.0.0/16"}, "there is no ForeignCluster", nil},
		{"silent", []string{"10.205.0.0/16"}, "announces no networks", nil},
		{"milan", []string{"10.205.0.0/16"}, "", []string{"10.205.0.0/16"}},
		{"milan", []string{"10.205.0.0/16", "242.0.0.0/16"}, "", []string{"10.205.0.0/16", "242.0.0.0/16"}},
	} {
		err := Networks(t.Context(), c, row.name, row.networks, &actiontest.Recorder{})
		if (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
			t.Errorf("%s %v: %v", row.name, row.networks, err)
		}
		var accepted []string
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(milan), milan); err != nil {
			t.Fatal(err)
		}
		if milan.Spec.Network != nil {
			accepted = milan.Spec.Network.AcceptedCIDRs
		}
		if !slices.Equal(accepted, row.accepted) {
			t.Errorf("%s %v: %v", row.name, row.networks, accepted)
		}
	}
	// What a peer writes in place of a network is no part of a command that an administrator copies.
	tunnel := &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "242.0.0.0/16"}}
	for pods, want := range map[netv1alpha1.CIDR]string{
		"10.205.0.0/16": "liqoctl accept networks milan 10.205.0.0/16", "10.201.0.0/16": "", "$(reboot)": "", "10.205.0.0/16; id": "",
	} {
		config.Spec.PodCIDR = pods
		config.Status.Conditions = []metav1.Condition{{Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonNetworkChanged}}
		if got := Command("milan", config, tunnel); got != want {
			t.Errorf("%s: %q", pods, got)
		}
	}
}
