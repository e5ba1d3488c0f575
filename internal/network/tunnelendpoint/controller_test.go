// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/tenants"
)

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
	r := newTunnelReconciler(Options{Peers: tenants.New(discoveryv1alpha1.ClusterIdentity{}, milan, nil), Now: func() time.Time { return now }})
	r.client, r.live = milan, milan
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
