// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestMovesForbidUninstallation: only the controller manager brings back a volume that a move has taken away, so an uninstallation would leave its claim Lost.
func TestMovesForbidUninstallation(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{discoveryv1alpha1.AddToScheme, offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	move := func(claim string, phase storagev1alpha1.MovePhase) client.Object {
		return &storagev1alpha1.VolumeMove{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claim, Finalizers: []string{labels.FinalizerMove}},
			Status:     storagev1alpha1.VolumeMoveStatus{Phase: phase},
		}
	}
	ended := []client.Object{move("moved", storagev1alpha1.MoveCompleted), move("refused", storagev1alpha1.MoveFailed)}
	if err := inUse(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(ended...).Build()); err != nil {
		t.Errorf("moves that have ended: %v", err)
	}
	all := append(ended, move("stopped", storagev1alpha1.MoveFinishing), move("new", ""), move("cancelled", storagev1alpha1.MoveRestoring))
	err := inUse(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build())
	var used *InUseError
	if !errors.As(err, &used) || !slices.Equal(used.Moves, []string{"shop/cancelled", "shop/new", "shop/stopped"}) {
		t.Fatalf("in use: %v", err)
	}
	if !strings.Contains(err.Error(), "liqoctl move volume CLAIM -n NAMESPACE --cancel`):\n    - shop/cancelled\n    - shop/new\n    - shop/stopped") {
		t.Error(err)
	}
}
