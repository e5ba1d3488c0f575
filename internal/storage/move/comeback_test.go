// SPDX-License-Identifier: Apache-2.0

package move

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

const written = "first, and what a pod wrote then"

// restored makes the volume of the claim again, as a backup tool does.
func (w *world) restored(change func(*corev1.PersistentVolume)) {
	w.t.Helper()
	volume := w.volumeFor(w.claim("data"), original, "worker")
	if change != nil {
		change(volume)
	}
	w.create(volume)
	w.settle()
}

// TestVolumeComesBack: after the target is verified, but before the claim has it, another client makes the volume of the source again, and pods write there.
// That is the current data, so the move takes itself back.
func TestVolumeComesBack(t *testing.T) {
	for _, name := range []string{"and stays", "and is being deleted", "and a pod has started on it before it was deleted"} {
		t.Run(name, func(t *testing.T) {
			w, done := newWorld(t, "worker", virtual), false
			move := w.run(func(move *v1alpha1.VolumeMove) {
				if move.Status.Phase != v1alpha1.MoveSwitching || done {
					return
				}
				done = true
				w.disks[original] = written
				switch name {
				case "and a pod has started on it before it was deleted":
					w.usedBy("db-0", true)
					return
				case "and is being deleted":
					w.restored(nil)
					w.must(w.Delete(t.Context(), w.volume(original)))
				default:
					w.restored(nil)
				}
			})
			if !done || move.Status.Phase != v1alpha1.MoveFailed || w.disks[original] != written {
				t.Fatalf("%s: %s; disks %v", move.Status.Phase, move.Status.Message, w.disks)
			}
			w.wantAt("worker")
		})
	}
}

// TestForeignVolume: a volume with data of neither side comes back. It is taken away, its data stays, and the move goes on.
func TestForeignVolume(t *testing.T) {
	w, done := newWorld(t, "worker", virtual), false
	w.forgiving = true
	move := w.run(func(move *v1alpha1.VolumeMove) {
		if move.Status.Phase == v1alpha1.MoveSwitching && !done {
			done = true
			w.disks["old"] = "of an earlier place"
			w.restored(func(volume *corev1.PersistentVolume) { volume.Annotations["storage.liqo.io/data"] = "old" })
		}
	})
	if !done || move.Status.Phase != v1alpha1.MoveCompleted || w.disks["old"] == "" {
		t.Fatalf("%s: %s; disks %v", move.Status.Phase, move.Status.Message, w.disks)
	}
	delete(w.disks, "old")
	w.wantAt(virtual)
}

// TestBothWritten: pods have written to the target, and then the volume of the source comes back. No data is deleted until the user decides, by the deletion of
// that volume.
func TestBothWritten(t *testing.T) {
	w, step, target := newWorld(t, "worker", virtual), 0, ""
	var came time.Time
	move := w.run(func(move *v1alpha1.VolumeMove) {
		const long = 4 * time.Minute
		switch {
		case step == 0 && move.Status.Phase == v1alpha1.MoveSwitching && w.switched():
			target, step, came = data.Name(w.volume(original)), 1, w.now
			w.disks[target] = written
			w.removeVolume(original)
			w.restored(nil)
			w.cancel(move)
		case step == 1 && w.now.Sub(came) < long:
			if w.disks[original] != "first" || w.disks[target] != written {
				t.Fatalf("phase %s: %s; disks %v", move.Status.Phase, move.Status.Message, w.disks)
			}
		case step == 1 && strings.Contains(move.Status.Message, "delete this PersistentVolume"):
			step++
			w.must(w.Delete(t.Context(), w.volume(original)))
		}
	})
	if move != nil || w.disks[target] != written {
		t.Fatalf("%v; disks %v", move, w.disks)
	}
	w.wantAt(virtual)
}
