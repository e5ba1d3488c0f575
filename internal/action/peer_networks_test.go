// SPDX-License-Identifier: Apache-2.0

package action

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestKeepNetworks: the word of an administrator is added to what is written down, unless a node here has an address in the network.
func TestKeepNetworks(t *testing.T) {
	for text, good := range map[string]bool{"10.201.0.0/16": true, "10.201.0.1/16": false, "10.201.0.0": false, "": false} {
		if err := checkNetworks("--keep-networks", []string{text}); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.12.7"}}}}
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, milan).Build()
	for _, row := range []struct {
		networks []string
		refused  string
		written  []string
	}{
		{nil, "", nil},
		{[]string{"10.201.0.0/16"}, "", []string{"10.201.0.0/16"}},
		{[]string{"10.0.12.0/24"}, "10.0.12.7 of node n1", []string{"10.201.0.0/16"}},
		{[]string{"10.202.0.0/16", "10.201.0.0/16"}, "", []string{"10.201.0.0/16", "10.202.0.0/16"}},
	} {
		err := keepNetworks(t.Context(), c, "milan", row.networks, &recorder{})
		if (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
			t.Errorf("%v: %v", row.networks, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(milan), milan); err != nil || !slices.Equal(milan.PodCIDRs(), row.written) {
			t.Errorf("%v: %v, %v", row.networks, milan.PodCIDRs(), err)
		}
	}
	text := announced(&netv1alpha1.NetworkConfig{
		Spec:   netv1alpha1.NetworkConfigSpec{PodCIDR: "10.201.0.0/16", ExternalCIDR: "242.0.0.0/16"},
		Status: netv1alpha1.NetworkConfigStatus{PodCIDRNAT: "None", ExternalCIDRNAT: "242.2.0.0/16"},
	})
	if want := "The other cluster announces its pods as 10.201.0.0/16, where this cluster reaches them as well, and its other addresses as 242.0.0.0/16, and this cluster reaches them as 242.2.0.0/16"; text != want {
		t.Error(text)
	}
}
