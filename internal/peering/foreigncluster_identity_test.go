// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

// emptyCluster has no objects.
type emptyCluster struct{ client.Reader }

func (emptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: string(corev1.ResourceSecrets)}, key.Name)
}

// TestDeadPeersLeaveWorkers: while requests use all slots, another peer is requeued and holds no worker.
func TestDeadPeersLeaveWorkers(t *testing.T) {
	asked := 0
	r := &fcReconciler{watched: emptyCluster{}, identityRequests: newIdentityRequests(), authSlots: make(chan struct{}, 1)}
	r.options.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) {
		asked++
		return nil, errors.New("connection refused")
	}
	obtain := func() *scope {
		t.Helper()
		s := &scope{fc: &discoveryv1alpha1.ForeignCluster{}, now: time.Unix(1000, 0), peer: discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id"}}
		s.fc.Name, s.fc.Spec.ClusterIdentity = "milan", &s.peer
		s.fc.Spec.InsecureSkipProviderVerify = true // there is no token
		if err := r.obtain(t.Context(), s, &heldIdentity{}, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	r.authSlots <- struct{}{}
	if s := obtain(); asked != 0 || s.facts.identity != identityPending || s.requeueAfter > time.Second {
		t.Errorf("without a free slot: asked %d times, state %d, requeue after %v", asked, s.facts.identity, s.requeueAfter)
	}
	<-r.authSlots
	if s := obtain(); asked != 1 || s.facts.identity != identityUnreachable {
		t.Errorf("with a free slot: asked %d times, state %d", asked, s.facts.identity)
	}
	if len(r.authSlots) != 0 {
		t.Error("a slot is lost")
	}
}
