// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestBudget: pods share the claim, and a PodDisruptionBudget requires one of them. The replacement of the evicted one cannot start while the volume is missing,
// so the other one can never be evicted: the move is taken back after some minutes, not before, because a budget may admit a pod soon.
func TestBudget(t *testing.T) {
	w := newWorld(t, "worker", virtual)
	w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.Online = true })
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		w.usedBy(name, true)
	}
	web := func() (all []string) {
		for _, pod := range w.pods() {
			if strings.HasPrefix(pod.Name, "web-") {
				all = append(all, pod.Name)
			}
		}
		return all
	}
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if o.GetName() == "web-0" || strings.HasPrefix(o.GetName(), "web-") && len(web()) == 1 {
				return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			}
			return c.Delete(ctx, o, options...)
		},
	})
	var lost time.Time
	move := w.run(func(*v1alpha1.VolumeMove) {
		if lost.IsZero() && w.volume(original) == nil {
			lost = w.now
		}
		w.now = w.now.Add(9 * time.Second)
	})
	if move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, "pod web-0: Cannot evict") {
		t.Errorf("%s: %s", move.Status.Phase, move.Status.Message)
	}
	const least, most = 4 * time.Minute, 10 * time.Minute
	if waited := w.now.Sub(lost); waited < least || waited > most {
		t.Errorf("the move was taken back after %v", waited)
	}
	if left := web(); !slices.Equal(left, []string{"web-0"}) {
		t.Errorf("one refused pod keeps the others from being evicted: %v", left)
	}
	if claim := w.claim("data"); claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is %s", claim.Status.Phase)
	}
	w.wantAt("worker")
}
