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

// nothing is a cluster without objects.
type nothing struct{ client.Reader }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: string(corev1.ResourceSecrets)}, key.Name)
}

// TestDeadPeersLeaveWorkers: while as many peers as may are being asked, another one is put off for a moment and holds no worker.
func TestDeadPeersLeaveWorkers(t *testing.T) {
	asked := 0
	r := &fcReconciler{watched: nothing{}, attempts: newAttempts(), asking: make(chan struct{}, 1)}
	r.options.Dial = func(*discoveryv1alpha1.ForeignCluster) (Registrar, error) {
		asked++
		return nil, errors.New("nobody there")
	}
	look := func() *scope {
		t.Helper()
		s := &scope{fc: &discoveryv1alpha1.ForeignCluster{}, now: time.Unix(1000, 0), peer: discoveryv1alpha1.ClusterIdentity{ClusterID: "milan-id"}}
		s.fc.Name, s.fc.Spec.ClusterIdentity = "milan", &s.peer
		if err := r.obtain(t.Context(), s, &heldIdentity{}, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	r.asking <- struct{}{}
	if s := look(); asked != 0 || s.facts.identity != identityPending || s.again > time.Second {
		t.Errorf("while others are asked: asked %d times, state %d, again in %v", asked, s.facts.identity, s.again)
	}
	<-r.asking
	if s := look(); asked != 1 || s.facts.identity != identityUnreachable {
		t.Errorf("afterwards: asked %d times, state %d", asked, s.facts.identity)
	}
	if len(r.asking) != 0 {
		t.Error("a place is lost")
	}
}
