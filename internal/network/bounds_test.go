// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestBounds: the API server refuses objects of a peer that are larger than any valid one.
func TestBounds(t *testing.T) {
	b := newBench(t)
	milan := b.peer("milan")
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	tunnel := milan.tunnel.DeepCopy()
	tunnel.Spec = netv1alpha1.TunnelEndpointSpec{
		LocalPodCIDR: "10.200.0.0/16", LocalExternalCIDR: "10.0.0.0/16", RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "10.202.0.0/16",
		BackendType: backend, BackendConfig: map[string]string{"publicKey": strings.Repeat("x", 253)},
	}
	b.Make(tunnel)
	many := map[string]string{}
	for i := range 17 {
		many[strconv.Itoa(i)] = "x"
	}
	for name, config := range map[string]map[string]string{"a long value": {"publicKey": strings.Repeat("x", 254)}, "a long name": {strings.Repeat("x", 64): "x"}, "many values": many} {
		b.Read(milan.copy)
		milan.copy.Spec.BackendConfig = config
		if err := b.Update(t.Context(), milan.copy); !apierrors.IsInvalid(err) {
			t.Errorf("%s in a NetworkConfig: %v", name, err)
		}
		b.Read(tunnel)
		tunnel.Spec.BackendConfig = config
		if err := b.Update(t.Context(), tunnel); !apierrors.IsInvalid(err) {
			t.Errorf("%s in a TunnelEndpoint: %v", name, err)
		}
	}
}

// peerOnly is a cluster with one peer and no other object.
type peerOnly struct {
	client.Client
	fc discoveryv1alpha1.ForeignCluster
}

func (c *peerOnly) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if fcs, ok := list.(*discoveryv1alpha1.ForeignClusterList); ok {
		fcs.Items = []discoveryv1alpha1.ForeignCluster{c.fc}
	}
	return nil
}

func (*peerOnly) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(netv1alpha1.GroupVersion.WithResource("networkconfigs").GroupResource(), key.Name)
}

// TestPace: a peer that keeps changing its configuration gets a burst of reconciles, then one per pacePause.
func TestPace(t *testing.T) {
	now := noon
	milan := &peerOnly{fc: discoveryv1alpha1.ForeignCluster{
		Spec:   discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"}},
		Status: discoveryv1alpha1.ForeignClusterStatus{TenantNamespace: discoveryv1alpha1.TenantNamespaces{Local: "milan"}},
	}}
	r := &tunnelReconciler{
		shared:   &shared{options: Options{Now: func() time.Time { return now }}, client: milan, live: milan},
		badSince: map[string]time.Time{}, lost: map[string][]string{}, carried: map[string]string{}, limiters: newLimiters(), steady: newSteadiness(),
	}
	reconciled := func() (count int) {
		for range 10 * paceBurst {
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "milan"}})
			if err != nil {
				t.Fatal(err)
			}
			switch result.RequeueAfter {
			case 0:
				count++
			case pacePause:
			default:
				t.Fatalf("requeue after %s, want %s", result.RequeueAfter, pacePause)
			}
		}
		return count
	}
	if got := reconciled(); got != paceBurst {
		t.Errorf("%d reconciles at once, want %d", got, paceBurst)
	}
	now = now.Add(8 * pacePause)
	if got := reconciled(); got != 8 {
		t.Errorf("%d reconciles after %s, want 8", got, 8*pacePause)
	}
}
