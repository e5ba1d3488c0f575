// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/installed"
)

// TestAttackNC1Words: the word of an administrator is added to what is written down, unless something here leads into the network already: an address
// or a route of a node, another peer, or this cluster. What nodes reach can be overruled by name, the rest not. What is refused is refused before
// anything is written.
func TestAttackNC1Words(t *testing.T) {
	for text, good := range map[string]bool{"10.201.0.0/16": true, "10.201.0.1/16": false, "10.201.0.0": false, "": false} {
		if err := (NetworkWords{Keep: []string{text}}).Check(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--keep-networks") {
			t.Errorf("%q: %v", text, err)
		}
		if err := (NetworkWords{Force: []string{text}}).Check(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--force-network") {
			t.Errorf("%q: %v", text, err)
		}
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	id := discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.12.7"}}},
	}
	milan := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id}}
	milan.Status.TenantNamespace.Local = id.TenantNamespace()
	config := &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.TenantNamespace(), Name: id.NetworkConfigName()},
		Spec:       netv1alpha1.NetworkConfigSpec{PodCIDR: "10.7.0.0/16", ExternalCIDR: "10.209.0.0/16"},
	}
	report := func(name string, networks ...netv1alpha1.NodeNetwork) *netv1alpha1.NodeReport {
		return &netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name}, Spec: netv1alpha1.NodeReportSpec{Networks: networks}}
	}
	tunnel := func(id string, pods netv1alpha1.CIDR, nat string) *netv1alpha1.TunnelEndpoint {
		return &netv1alpha1.TunnelEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id}, Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: id}, RemotePodCIDR: pods, RemoteNATPodCIDR: nat,
		}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		node, milan, config,
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: installed.NetworksName},
			Data:       map[string]string{"POD_CIDR": "10.200.0.0/16", "SERVICE_CIDR": "10.96.0.0/16", "RESERVED_SUBNETS": "10.1.0.0/16"},
		},
		report(
			"n1", netv1alpha1.NodeNetwork{CIDR: "10.7.0.5/32", Kind: netv1alpha1.NodeNetworkRoute, Link: "eth1"},
			netv1alpha1.NodeNetwork{CIDR: "10.200.1.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "cni0"},
		),
		report("gone", netv1alpha1.NodeNetwork{CIDR: "10.201.0.0/16", Kind: netv1alpha1.NodeNetworkRoute}),
		tunnel("turin-id", "10.205.0.0/16", "None"), tunnel("paris-id", "10.201.0.0/16", "242.1.0.0/16"), tunnel("milan-id", "10.201.0.0/16", "None"),
	).Build()
	for _, row := range []struct {
		words           NetworkWords
		refused         string
		written, forced []string
	}{
		{NetworkWords{}, "", nil, nil},
		{NetworkWords{Keep: []string{"10.201.0.0/16"}}, "", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Keep: []string{"10.0.12.0/24"}}, "10.0.12.7/32 (address of node n1)", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Force: []string{"10.0.12.0/24"}}, "10.0.12.7/32 (address of node n1)", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Keep: []string{"10.205.0.0/16"}}, "10.205.0.0/16 (cluster turin-id)", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Force: []string{"10.200.0.0/16"}}, "this cluster, POD_CIDR", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Keep: []string{"10.1.0.0/16", "10.203.0.0/16"}}, "this cluster, RESERVED_SUBNETS", []string{"10.201.0.0/16"}, nil},
		{NetworkWords{Keep: []string{"10.7.0.0/16"}}, "10.7.0.5/32 (node n1 by a route eth1); if it is to lead to the other cluster nevertheless, " +
			"and not where the nodes reach it now: --force-network 10.7.0.0/16", []string{"10.201.0.0/16"}, nil},
		{
			NetworkWords{Keep: []string{"10.7.0.0/16", "10.201.0.0/16"}, Force: []string{"10.7.0.0/16"}},
			"",
			[]string{"10.201.0.0/16", "10.7.0.0/16"},
			[]string{"10.7.0.0/16"},
		},
		{NetworkWords{Keep: []string{"10.202.0.0/16", "10.201.0.0/16"}}, "", []string{"10.201.0.0/16", "10.7.0.0/16", "10.202.0.0/16"}, []string{"10.7.0.0/16"}},
	} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(milan), milan); err != nil {
			t.Fatal(err)
		}
		shown := &actiontest.Recorder{}
		err := row.words.JudgeFor(t.Context(), c, Peer{Namespace: "liqo", Foreign: milan}, shown)
		if err == nil {
			err = row.words.Write(t.Context(), c, "milan", shown)
		}
		if (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
			t.Errorf("%v: %v", row.words, err)
		}
		if lines := strings.Join(shown.Lines, "\n"); !strings.Contains(lines, "announces its pods as 10.7.0.0/16, and its other addresses as 10.209.0.0/16") ||
			!strings.Contains(lines, "10.7.0.0/16 of the other cluster: here, this leads elsewhere: 10.7.0.5/32 (node n1 by a route eth1)") ||
			!strings.Contains(lines, "10.209.0.0/16 of the other cluster: nothing that this cluster knows is there") {
			t.Errorf("%v: shown\n%s", row.words, lines)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(milan), milan); err != nil || !slices.Equal(milan.PodCIDRs(), row.written) {
			t.Errorf("%v: %v, %v", row.words, milan.PodCIDRs(), err)
		}
		if milan.Spec.Network != nil && !slices.Equal(milan.Spec.Network.ForcedCIDRs, row.forced) {
			t.Errorf("%v: forced %v", row.words, milan.Spec.Network.ForcedCIDRs)
		}
	}
	// A node that has not reported is named, and only a node with an agent.
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: installed.RouteName}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	for _, object := range []client.Object{
		set, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: set.Spec.Template.Spec.NodeSelector}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	shown, last := &actiontest.Recorder{}, NetworkWords{Keep: []string{"10.202.0.0/16", "10.201.0.0/16"}}
	if err := last.JudgeFor(t.Context(), c, Peer{Namespace: "liqo", Foreign: milan}, shown); err != nil ||
		!strings.Contains(strings.Join(shown.Lines, "\n"), "these nodes have not reported what they reach: n2; before") {
		t.Errorf("%v, shown\n%s", err, strings.Join(shown.Lines, "\n"))
	}
	// In-band, the lists hold the networks of both clusters.
	all, err := ReadLeads(t.Context(), c, "liqo", "milan-id")
	if err != nil {
		t.Fatal(err)
	}
	both := NetworkWords{Keep: []string{"10.200.0.0/16", "10.201.0.0/16"}}.withoutOwn(all.taken)
	if refused := both.refusals(all.taken); len(refused) > 0 || !slices.Equal(both.Keep, []string{"10.201.0.0/16"}) {
		t.Errorf("%v: %v", both, refused)
	}
	text := announced(&netv1alpha1.NetworkConfig{
		Spec:   netv1alpha1.NetworkConfigSpec{PodCIDR: "10.201.0.0/16", ExternalCIDR: "242.0.0.0/16"},
		Status: netv1alpha1.NetworkConfigStatus{PodCIDRNAT: "None", ExternalCIDRNAT: "242.2.0.0/16"},
	})
	if want := "The other cluster announces its pods as 10.201.0.0/16, where this cluster reaches them as well, and its other addresses as " +
		"242.0.0.0/16, and this cluster reaches them as 242.2.0.0/16"; text != want {
		t.Error(text)
	}
}
