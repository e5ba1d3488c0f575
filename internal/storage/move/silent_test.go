// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

// unreachable keeps an object while it is being deleted.
const unreachable = "test/unreachable"

// silence has the pods of a role stay while they are being deleted, and the claims that they use: as the virtual kubelet keeps a pod whose provider does not
// answer, or as that of a node that is lost.
func (w *world) silence(role string) {
	w.t.Helper()
	for _, pod := range w.pods() {
		if pod.Labels[labels.MoveRole] != role || slices.Contains(pod.Finalizers, unreachable) {
			continue
		}
		pod.Finalizers = append(pod.Finalizers, unreachable)
		w.must(w.Update(w.t.Context(), &pod))
		if claim := w.claim(pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName); !slices.Contains(claim.Finalizers, unreachable) {
			claim.Finalizers = append(claim.Finalizers, unreachable)
			w.must(w.Update(w.t.Context(), claim))
		}
	}
}

// answer ends a silence.
func (w *world) answer() {
	w.t.Helper()
	var all []client.Object
	for _, pod := range w.pods() {
		all = append(all, &pod)
	}
	for _, claim := range w.claims() {
		all = append(all, &claim)
	}
	for _, object := range all {
		if slices.Contains(object.GetFinalizers(), unreachable) {
			object.SetFinalizers(without(object.GetFinalizers(), unreachable))
			w.must(client.IgnoreNotFound(w.Update(w.t.Context(), object)))
		}
	}
	for range 5 {
		w.settle()
	}
}

// TestSilentPeer: a pod of the move does not end, and the user takes the move back. The claim has its volume again at once, unless a pod of this cluster still
// reads the data. The move ends, and what is left goes when the peer answers. No step of the wait writes.
func TestSilentPeer(t *testing.T) {
	for _, row := range []struct {
		from, to, role string
		phase          v1alpha1.MovePhase
		reads          bool
	}{
		{"worker", virtual, labels.MoveRoleTarget, v1alpha1.MoveFinishing, false},
		{"worker", virtual, labels.MoveRoleTarget, v1alpha1.MoveSwitching, false},
		{virtual, "liqo-turin", labels.MoveRoleTarget, v1alpha1.MoveFinishing, false},
		{virtual, "worker", labels.MoveRoleCopy, v1alpha1.MoveFinishing, false},
		{"worker", virtual, labels.MoveRoleCopy, v1alpha1.MoveFinishing, true},
	} {
		t.Run(fmt.Sprintf("from %s to %s, pods that are %s, phase %s", row.from, row.to, row.role, row.phase), func(t *testing.T) {
			w := newWorld(t, row.from, row.to)
			var cancelled, back time.Time
			silent, before := false, 0
			move := w.run(func(move *v1alpha1.VolumeMove) {
				if move.Status.Phase == v1alpha1.MoveFinishing || move.Status.Phase == v1alpha1.MoveSwitching {
					w.silence(row.role)
				}
				silent = slices.ContainsFunc(w.pods(), func(pod corev1.Pod) bool { return slices.Contains(pod.Finalizers, unreachable) })
				switch {
				case cancelled.IsZero() && silent && move.Status.Phase == row.phase && w.volume(original) == nil:
					w.cancel(move)
					cancelled, before = w.now, w.writes
				case !cancelled.IsZero() && back.IsZero() && w.volume(original) != nil:
					back = w.now
				}
				const long = 2 * time.Minute
				if row.reads && silent && !cancelled.IsZero() && w.now.Sub(cancelled) > long {
					if !back.IsZero() {
						t.Errorf("the volume came back after %v, while pod of this cluster reads its data", back.Sub(cancelled))
					}
					w.answer()
				}
			})
			if move != nil || cancelled.IsZero() || back.IsZero() {
				t.Fatalf("cancelled at %v, back at %v: %+v", cancelled, back, move)
			}
			if waited := back.Sub(cancelled); !row.reads && waited > 10*time.Second {
				t.Errorf("the volume came back after %v", waited)
			}
			const most = 25
			if writes := w.writes - before; writes > most {
				t.Errorf("%d writes", writes)
			}
			if volume := w.volume(original); data.Name(volume) != original || w.disks[original] != "first" || w.claim("data").Status.Phase != corev1.ClaimBound {
				t.Errorf("volume %v, disks %v", volume, w.disks)
			}
			w.answer()
			w.wantAt(row.from)
		})
	}
}
