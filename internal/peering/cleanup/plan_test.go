// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

const (
	no  = discoveryv1alpha1.PeeringNo
	yes = discoveryv1alpha1.PeeringYes
)

// peer has generation 2.
func peer(
	name string, outgoing, incoming discoveryv1alpha1.PeeringEnabled, observed int64, conditions ...discoveryv1alpha1.PeeringCondition,
) discoveryv1alpha1.ForeignCluster {
	return discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{OutgoingPeeringEnabled: outgoing, IncomingPeeringEnabled: incoming},
		Status:     discoveryv1alpha1.ForeignClusterStatus{ObservedGeneration: observed, PeeringConditions: conditions},
	}
}

func is(of discoveryv1alpha1.PeeringConditionType, status discoveryv1alpha1.PeeringConditionStatus, message string) discoveryv1alpha1.PeeringCondition {
	return discoveryv1alpha1.PeeringCondition{Type: of, Status: status, Reason: "Why", Message: message}
}

func tunnel(name string) netv1alpha1.TunnelEndpoint {
	return netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + name, Name: name},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: name, ClusterName: name}, BackendType: "wireguard", BackendConfig: map[string]string{},
			LocalPodCIDR: "10.0.0.0/16", LocalNATPodCIDR: "None", LocalExternalCIDR: "10.1.0.0/16", LocalNATExternalCIDR: "None",
			RemotePodCIDR: "10.2.0.0/16", RemoteNATPodCIDR: "None", RemoteExternalCIDR: "10.3.0.0/16", RemoteNATExternalCIDR: "None",
		},
	}
}

func TestNext(t *testing.T) {
	dying := peer("milan", no, no, 2, is(discoveryv1alpha1.IncomingPeering, discoveryv1alpha1.StatusDisconnecting, ""))
	dying.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	tenant := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan-1"}}
	terminating := *tenant.DeepCopy()
	terminating.DeletionTimestamp = dying.DeletionTimestamp
	terminating.Status.Conditions = []corev1.NamespaceCondition{{Status: corev1.ConditionTrue, Message: "a finalizer is left"}}

	for _, test := range []struct {
		name         string
		peers        []discoveryv1alpha1.ForeignCluster
		tenants      []corev1.Namespace
		tunnels      []netv1alpha1.TunnelEndpoint
		stop, remove []string
		waiting      string // part of it; empty: nothing is waited for
	}{
		{name: "nothing"},
		{name: "wanted", peers: []discoveryv1alpha1.ForeignCluster{peer("milan", yes, no, 2), peer("rome", no, "Auto", 2)}, stop: []string{"milan", "rome"}},
		{name: "not processed", peers: []discoveryv1alpha1.ForeignCluster{peer("milan", no, no, 1)}, waiting: "check that it runs"},
		{
			name: "still up", peers: []discoveryv1alpha1.ForeignCluster{peer("milan", no, no, 2,
				is(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusDisconnecting, "2 pods are left"))},
			waiting: "OutgoingPeering is Disconnecting (Why): 2 pods are left",
		},
		{name: "refused, with a request that the peer does not withdraw", peers: []discoveryv1alpha1.ForeignCluster{peer("rome", no, no, 2,
			is(discoveryv1alpha1.IncomingPeering, discoveryv1alpha1.StatusDenied, ""))}, remove: []string{"rome"}},
		{name: "denied by the peer", peers: []discoveryv1alpha1.ForeignCluster{peer("rome", no, no, 2,
			is(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusDenied, ""))}, waiting: "rome is still peered"},
		{name: "down", peers: []discoveryv1alpha1.ForeignCluster{peer("milan", no, no, 2,
			is(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusNone, ""),
			is(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusError, "does not matter"))}, remove: []string{"milan"}},
		{
			name: "being deleted", peers: []discoveryv1alpha1.ForeignCluster{dying}, tenants: []corev1.Namespace{tenant},
			waiting: "milan is being deleted; IncomingPeering is Disconnecting",
		},
		{name: "namespace ends", tenants: []corev1.Namespace{terminating}, waiting: "is being deleted; a finalizer is left"},
		{name: "namespace without a ForeignCluster", tenants: []corev1.Namespace{tenant}, waiting: "kubectl delete namespace liqo-tenant-milan-1"},
		{
			name: "tunnel stands", tunnels: []netv1alpha1.TunnelEndpoint{tunnel("milan")},
			waiting: "TunnelEndpoint liqo-tenant-milan/milan, the tunnel to milan, is still there",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := next(test.peers, test.tenants, test.tunnels)
			if !slices.Equal(names(got.stop), test.stop) || !slices.Equal(names(got.remove), test.remove) {
				t.Errorf("stop %v, remove %v; want %v, %v", names(got.stop), names(got.remove), test.stop, test.remove)
			}
			text := strings.Join(got.waiting, "\n")
			if !strings.Contains(text, test.waiting) || (test.waiting == "" && text != "") {
				t.Errorf("waiting: %q, want %q", text, test.waiting)
			}
			if want := len(test.peers)+len(test.tenants)+len(test.tunnels) == 0; got.done() != want {
				t.Errorf("done: %t", got.done())
			}
		})
	}
}

func names(peers []discoveryv1alpha1.ForeignCluster) (all []string) {
	for _, one := range peers {
		all = append(all, one.Name)
	}
	return all
}

// TestUnoffload: what is ending already is not refused, also in a namespace that Kubernetes has only begun to delete.
func TestUnoffload(t *testing.T) {
	at := metav1.Now()
	one := func(namespace string, deleted *metav1.Time) offloadingv1alpha1.NamespaceOffloading {
		return offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading", DeletionTimestamp: deleted}}
	}
	namespaces := []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "going", DeletionTimestamp: &at}},
		{ObjectMeta: metav1.ObjectMeta{Name: "terminating"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
	}
	all := []offloadingv1alpha1.NamespaceOffloading{one("unseen", nil), one("shop", nil), one("going", nil), one("terminating", nil), one("unoffloaded", &at)}
	if have := strings.Join(unoffload(all, namespaces), ", "); have != "liqoctl unoffload namespace shop, liqoctl unoffload namespace unseen" {
		t.Error(have)
	}
}
