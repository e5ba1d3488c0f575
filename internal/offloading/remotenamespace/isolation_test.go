// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/offloading/isolation"
)

// TestAttackNM4: a peer's first pod finds a NetworkPolicy that is older than the peer's rights, follows the networks, and stays.
func TestAttackNM4(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-turin"}})
	on := Isolation{Options: isolation.Options{Enabled: true, Clients: isolation.DefaultClients(), DNS: isolation.DefaultDNS()}, InternalNetwork: true}
	run := func(with Isolation) (stop func()) {
		return b.Start(func(mgr ctrl.Manager) error {
			return Setup(mgr, Options{Namespace: "liqo", Bounds: testBounds, Isolation: with})
		})
	}
	stop := run(on)
	namespaceMap := b.createMap("milan-1", map[string]string{"shop": "shop-paris"})
	b.answers(namespaceMap, map[string]string{"shop": "Accepted"})
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop-paris", Name: name} }
	policy, rights := &networkingv1.NetworkPolicy{ObjectMeta: at(boundsName)}, &rbacv1.RoleBinding{ObjectMeta: at(consumerTenant)}
	b.Read(policy)
	b.Read(rights)
	if order, err := resourceversion.CompareResourceVersion(policy.ResourceVersion, rights.ResourceVersion); err != nil || order >= 0 {
		t.Errorf("the policy was created after the rights of the consumer: %d, %v", order, err)
	}
	has := func(part string) func() bool {
		return func() bool {
			b.Read(policy)
			return strings.Contains(fmt.Sprint(policy.Spec.Egress), part)
		}
	}
	paris := b.agree(consumerTenant, "paris-id", "10.61.0.0/16")
	b.Until("the networks of the peer are admitted", has("CIDR:10.61.0.0/16"))
	b.agree("liqo-tenant-turin", "turin-id", "198.51.0.0/16")
	b.Until("the network of another peer is denied", has("198.51.0.0/16"))
	b.Edit(paris, func() { paris.Spec.RemoteNATPodCIDR = "10.62.0.0/16" })
	b.Until("a change is followed", func() bool { return has("CIDR:10.62.0.0/16")() && !has("CIDR:10.61.0.0/16")() })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	b.Make(node)
	b.EditStatus(node, func() {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.9"}}
	})
	b.Until("a new node is denied", has("203.0.113.9/32"))

	b.Edit(policy, func() {
		policy.Spec.PolicyTypes, policy.Spec.Egress = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, nil
	})
	b.Until("a changed policy is restored", has("203.0.113.9/32"))
	b.Must(b.Delete(t.Context(), policy))
	b.Until("a deleted policy is restored", func() bool { return b.Exists(policy) })
	b.Must(b.Delete(t.Context(), paris))
	b.Until("without the tunnel, nothing of the peering is admitted", func() bool { return !has("CIDR:10.62.0.0/16")() })

	stop()
	run(Isolation{})
	b.Until("the policy is removed when the administrator wants none", func() bool { return b.Gone(policy) })
}

// TestIsolationExternal: where another network joins the clusters, the policy follows what the administrator wrote down.
func TestIsolationExternal(t *testing.T) {
	b := newProviderEnv(t)
	b.consumerTenant()
	b.Start(func(mgr ctrl.Manager) error {
		return Setup(mgr, Options{Namespace: "liqo", Isolation: Isolation{Options: isolation.Options{Enabled: true}}})
	})
	b.answers(b.createMap("milan-1", map[string]string{"shop": "shop-paris"}), map[string]string{"shop": "Accepted"})
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "paris"}}
	b.Read(fc)
	b.Edit(fc, func() { fc.Spec.Network = &discoveryv1alpha1.PeerNetwork{PodCIDRs: []string{"10.77.0.0/16"}} })
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-paris", Name: boundsName}}
	b.Until("the written network is admitted", func() bool {
		b.Read(policy)
		return strings.Contains(fmt.Sprint(policy.Spec.Egress), "CIDR:10.77.0.0/16")
	})
}

// agree makes the TunnelEndpoint of a peer whose pods are reached under a network.
func (b *providerEnv) agree(namespace, clusterID, pods string) *netv1alpha1.TunnelEndpoint {
	b.T.Helper()
	tunnel := &netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tunnel"},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: clusterID, ClusterName: "x"}, BackendType: "wireguard",
			LocalPodCIDR: "10.10.0.0/16", LocalExternalCIDR: "10.11.0.0/16", RemotePodCIDR: "10.10.0.0/16", RemoteNATPodCIDR: pods, RemoteExternalCIDR: "242.5.0.0/16",
			BackendConfig: map[string]string{"publicKey": "k", "port": "1"},
		},
	}
	b.Make(tunnel)
	return tunnel
}
