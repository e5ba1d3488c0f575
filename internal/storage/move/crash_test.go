// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
	"liqo.io/liqo/internal/storage/move/plan"
)

// directions are from and to.
var directions = [][2]string{{"worker", virtual}, {virtual, "worker"}, {virtual, "liqo-turin"}}

func (w *world) edit(change func(*v1alpha1.VolumeMove)) {
	w.t.Helper()
	move := w.move()
	change(move)
	w.must(w.Update(w.t.Context(), move))
}

// usedBy makes a pod of the user.
func (w *world) usedBy(name string, controlled bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: "worker", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if controlled {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
	}
	w.create(pod)
	return pod
}

func (w *world) cancel(move *v1alpha1.VolumeMove) {
	if move != nil && move.DeletionTimestamp == nil {
		w.must(client.IgnoreNotFound(w.Delete(w.t.Context(), move)))
	}
}

// wantAt checks where the data of the claim is.
func (w *world) wantAt(node string) {
	w.t.Helper()
	volume := w.volume(original)
	switch {
	case volume == nil:
		w.t.Fatal("the claim has no volume")
	case volume.Labels[labels.RemoteClusterID] != strings.TrimPrefix(node, "worker"):
		w.t.Errorf("the data is in %q, want it at %s", volume.Labels[labels.RemoteClusterID], node)
	case volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		w.t.Errorf("the policy of the volume has become %s", volume.Spec.PersistentVolumeReclaimPolicy)
	}
	if claim := w.claim("data"); claim.Status.Phase != corev1.ClaimBound || claim.UID != "claim" || claim.Labels["app"] != "db" {
		w.t.Errorf("the claim has changed: %+v", claim)
	}
	if left := w.left(); len(left) > 0 {
		w.t.Errorf("left over: %v", left)
	}
	w.wantDisks(data.Name(volume))
}

// TestMoves: a move in every direction ends with the data there, and nothing else.
func TestMoves(t *testing.T) {
	for _, way := range directions {
		for name, change := range map[string]func(*world){
			"offline": func(*world) {},
			"online": func(w *world) {
				w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.Online = true })
				w.usedBy("db-0", true)
			},
		} {
			t.Run(fmt.Sprintf("%s from %s to %s", name, way[0], way[1]), func(t *testing.T) {
				w := newWorld(t, way[0], way[1])
				change(w)
				if move := w.run(nil); move.Status.Phase != v1alpha1.MoveCompleted {
					t.Fatalf("%s: %s", move.Status.Phase, move.Status.Message)
				}
				w.wantAt(way[1])
			})
		}
	}
}

// TestKilled: the controller dies after each of its writes, and another one goes on. The law holds at every moment, and the end is the same.
func TestKilled(t *testing.T) {
	for _, way := range directions {
		for _, cancelled := range []bool{false, true} {
			if cancelled && way != directions[2] { // TestEnds has the others brought back
				continue
			}
			whole := newWorld(t, way[0], way[1])
			whole.run(nil)
			for kill := 1; kill <= whole.writes; kill++ {
				t.Run(fmt.Sprintf("from %s to %s, cancelled %t, write %d", way[0], way[1], cancelled, kill), func(t *testing.T) {
					t.Parallel()
					killed(t, way, cancelled, kill)
				})
			}
		}
	}
}

func killed(t *testing.T, way [2]string, cancelled bool, kill int) {
	w := newWorld(t, way[0], way[1])
	w.kill = kill
	late := false
	move := w.run(func(move *v1alpha1.VolumeMove) {
		if cancelled && w.writes >= kill {
			late = late || w.switched()
			w.cancel(move)
		}
	})
	switch {
	case cancelled && move == nil:
		at := way[0]
		if w.switched() {
			at = way[1]
		}
		w.wantAt(at)
	case move == nil || move.Status.Phase != v1alpha1.MoveCompleted:
		t.Fatalf("%+v", move)
	default:
		w.wantAt(way[1])
	}
	if cancelled && late && !w.switched() {
		t.Error("the data was switched, and then it was switched back")
	}
}

// switched reports whether the claim has the data of the target.
func (w *world) switched() bool {
	volume := w.volume(original)
	return volume != nil && data.Name(volume) != original
}

// TestEnds: what happens beside the move, in every phase.
func TestEnds(t *testing.T) {
	phases := []v1alpha1.MovePhase{v1alpha1.MovePreparing, v1alpha1.MoveCopying, v1alpha1.MoveStopping, v1alpha1.MoveFinishing, v1alpha1.MoveSwitching, v1alpha1.MoveRemoving}
	for _, phase := range phases {
		t.Run("the user deletes the claim in phase "+string(phase), func(t *testing.T) {
			w := newWorld(t, "worker", virtual)
			w.run(func(move *v1alpha1.VolumeMove) {
				if claim := w.claim("data"); claim != nil && move.Status.Phase == phase {
					w.must(w.Delete(t.Context(), claim))
				}
			})
			for range 5 {
				w.settle()
			}
			if volumes := w.volumes(); len(volumes) > 0 || len(w.disks) > 0 || len(w.left()) > 0 {
				t.Errorf("the data of a deleted claim is left: %d volumes, disks %v, objects %v", len(volumes), w.disks, w.left())
			}
		})
		t.Run("a pod starts in phase "+string(phase), func(t *testing.T) {
			w := newWorld(t, "worker", virtual)
			pod := (*corev1.Pod)(nil)
			move := w.run(func(move *v1alpha1.VolumeMove) {
				// The scheduler places no pod while the claim has no volume, but one may name its node.
				if move.Status.Phase == phase && pod == nil && (w.volume(original) != nil || phase == v1alpha1.MoveFinishing) {
					pod = w.usedBy("late", false)
				}
			})
			if pod == nil {
				t.Fatal("no pod was started: this case proves nothing")
			}
			before := slices.Contains([]v1alpha1.MovePhase{v1alpha1.MovePreparing, v1alpha1.MoveCopying, v1alpha1.MoveStopping, v1alpha1.MoveFinishing}, phase)
			switch {
			case before && (move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, "late")):
				t.Errorf("%s: %s", move.Status.Phase, move.Status.Message)
			case before:
				w.wantAt("worker")
			default:
				w.wantAt(virtual)
			}
		})
	}
}

// TestRefused: what cannot work fails in one sentence, before anything is made.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*world){
		"has no claim":       func(w *world) { w.must(w.Delete(w.t.Context(), w.claim("data"))) },
		"there already":      func(w *world) { w.retarget("worker") },
		"there is no node":   func(w *world) { w.retarget("nowhere") },
		"pods use the claim": func(w *world) { w.usedBy("db-0", true) },
		"grants no storage": func(w *world) {
			w.must(w.DeleteAllOf(w.t.Context(), &sharingSlice, client.InNamespace("liqo-tenant-"+virtual)))
		},
		"is not offloaded": func(w *world) {
			w.must(w.DeleteAllOf(w.t.Context(), &namespaceMap, client.InNamespace("liqo-tenant-"+virtual)))
		},
		"is not one of Liqo's": func(w *world) { w.of("someone.else") },
		"has no controller": func(w *world) {
			w.usedBy("db-0", false)
			w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.Online = true })
		},
		"belongs to another claim": func(w *world) {
			volume := w.volume(original)
			volume.Spec.ClaimRef.UID = "another"
			w.must(w.Update(w.t.Context(), volume))
		},
		"is cordoned": func(w *world) { w.node(func(n *corev1.Node) { n.Spec.Unschedulable = true }) },
		"takes no further pods": func(w *world) {
			w.node(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: labels.TaintNoNewPods, Effect: corev1.TaintEffectNoSchedule}}
			})
		},
		"is not ready": func(w *world) { w.node(func(n *corev1.Node) { n.Status.Conditions = nil }) },
		"block device": func(w *world) {
			w.edited(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
		},
		"does not exist yet": func(w *world) { // as a claim that starts with a copy, which its provider refuses or has not made
			w.retarget("worker")
			w.removeVolume(original)
			volume := w.volumeFor(w.claim("data"), original, virtual)
			delete(volume.Annotations, labels.RemoteVolume)
			w.create(volume)
		},
		"with the strategy Local": func(w *world) {
			w.create(&offloadingv1alpha1.NamespaceOffloading{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName},
				Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1alpha1.PodsLocal},
			})
		},
		"as root":     func(w *world) { w.restrict() },
		"no data yet": func(w *world) { w.pending() },
		"one pod only (": func(w *world) {
			w.usedBy("db-0", true)
			w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.Online = true })
			w.edited(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			})
		},
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t, "worker", virtual)
			change(w)
			for range 5 {
				_, _, err := w.controller().step(t.Context(), w.move())
				w.must(err)
			}
			if move := w.move(); move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, want) {
				t.Errorf("%s: %q, want %q", move.Status.Phase, move.Status.Message, want)
			}
			if left := w.left(); len(left) > 0 {
				t.Errorf("a refused move made %v", left)
			}
		})
	}
}

// TestOptions: a dry run changes nothing, a kept source stays, and a full target brings the volume back.
func TestOptions(t *testing.T) {
	w := newWorld(t, "worker", virtual)
	w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true })
	if move := w.run(nil); move.Status.Phase != v1alpha1.MoveCompleted || move.Status.Estimate == nil || move.Status.Estimate.Bytes != 5 {
		t.Errorf("dry run: %+v", move.Status)
	}
	w.wantAt("worker")

	w = newWorld(t, "worker", virtual)
	w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.KeepSource = true })
	move := w.run(nil)
	if kept := w.volume("liqo-move-01234567-89ab"); kept == nil || kept.Status.Phase != corev1.VolumeReleased || w.disks[original] != "first" || !strings.Contains(move.Status.Message, kept.Name) {
		t.Errorf("the source is not kept: %v, disks %v, %s", kept, w.disks, move.Status.Message)
	}

	w = newWorld(t, "worker", virtual)
	w.full = true
	if move := w.run(nil); move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, "does not fit") || strings.Contains(move.Status.Message, "\n") {
		t.Errorf("a full target: %+v", move.Status)
	}
	w.wantAt("worker")
}

// TestDryRunDeletesNothing: a pod that waits on the node of a claim whose data is elsewhere is deleted after a move, but not by a dry run.
func TestDryRunDeletesNothing(t *testing.T) {
	w := newWorld(t, virtual, "worker")
	w.edit(func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true })
	pod := w.usedBy("db-0", true)
	pod.Status.Phase = corev1.PodPending
	w.must(w.Status().Update(t.Context(), pod))
	move := w.run(nil)
	if pods := w.pods(); move.Status.Phase != v1alpha1.MoveCompleted || len(pods) != 1 || pods[0].Name != "db-0" {
		t.Fatalf("%s: %s; pods %v", move.Status.Phase, move.Status.Message, pods)
	}
}

// TestVolumeDeleted: another client deletes the volume before the fence. The move ends; with the second record, the volume comes back.
func TestVolumeDeleted(t *testing.T) {
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreparing, v1alpha1.MoveCopying} {
		w, done := newWorld(t, "worker", virtual), false
		w.forgiving = true
		move := w.run(func(move *v1alpha1.VolumeMove) {
			if move.Status.Phase == phase && !done {
				done = true
				w.removeVolume(original)
			}
		})
		if !done || move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, "volume pvc-claim of claim data was deleted") {
			t.Fatalf("phase %s: %s: %s", phase, move.Status.Phase, move.Status.Message)
		}
		if phase == v1alpha1.MoveCopying {
			w.wantAt("worker")
		}
	}
}

// deletions are what an administrator may delete of a move. Each reports whether it was there.
var deletions = map[string]func(*world) bool{
	"the claim of the source": func(w *world) bool { return w.removeClaim("liqo-move-01234567-source") },
	"the claim of the target": func(w *world) bool { return w.removeClaim("liqo-move-01234567-target") },
	"the volume of the target": func(w *world) (done bool) {
		for _, one := range w.volumes() {
			if one.Spec.ClaimRef.Name == "liqo-move-01234567-target" {
				done = w.removeVolume(one.Name)
			}
		}
		return done
	},
	"the second record": func(w *world) bool { // without both records, nothing names the data
		return w.volume(original) != nil && w.removeVolume("liqo-move-01234567-89ab")
	},
	"the volume that is switched": func(w *world) bool { return w.switched() && w.removeVolume(original) },
}

// never are phases in which there is nothing to delete.
var never = map[string][]v1alpha1.MovePhase{
	"the second record":           {v1alpha1.MoveFinishing},
	"the volume that is switched": {v1alpha1.MovePreparing, v1alpha1.MoveCopying, v1alpha1.MoveStopping, v1alpha1.MoveFinishing},
}

// TestDeletedByOthers: an administrator deletes an object of a move, in every phase that has it. The data is whole, at one of both places, and the claim has
// it again.
func TestDeletedByOthers(t *testing.T) {
	phases := []v1alpha1.MovePhase{v1alpha1.MovePreparing, v1alpha1.MoveCopying, v1alpha1.MoveStopping, v1alpha1.MoveFinishing, v1alpha1.MoveSwitching, v1alpha1.MoveRemoving}
	for _, phase := range phases {
		for what, remove := range deletions {
			t.Run(fmt.Sprintf("%s in phase %s", what, phase), func(t *testing.T) {
				t.Parallel()
				w, done := newWorld(t, "worker", virtual), false
				w.forgiving = true
				w.run(func(move *v1alpha1.VolumeMove) {
					if move.Status.Phase == phase && !done {
						done = remove(w)
					}
				})
				if wants := !slices.Contains(never[what], phase); done != wants {
					t.Errorf("it was deleted: %t, want %t", done, wants)
				}
				volume := w.volume(original)
				if claim := w.claim("data"); volume == nil || claim.Status.Phase != corev1.ClaimBound {
					t.Fatalf("the claim has no volume; its phase is %s", claim.Status.Phase)
				}
				if w.disks[data.Name(volume)] != "first" {
					t.Errorf("the data of the claim is %q", w.disks[data.Name(volume)])
				}
			})
		}
	}
}

// TestPolicyChanged: the user changes the reclaim policy while the volume moves, and it stays so.
func TestPolicyChanged(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		w, changed := newWorld(t, "worker", virtual), false
		w.run(func(move *v1alpha1.VolumeMove) {
			switch {
			case move.Status.Phase == v1alpha1.MoveCopying && !changed:
				changed = true
				volume := w.volume(original)
				volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
				w.must(w.Update(t.Context(), volume))
			case move.Status.Phase == v1alpha1.MoveFinishing && cancelled:
				w.cancel(move)
			}
		})
		if policy := w.volume(original).Spec.PersistentVolumeReclaimPolicy; !changed || policy != corev1.PersistentVolumeReclaimRetain {
			t.Errorf("cancelled %t: the policy has become %s again", cancelled, policy)
		}
	}
}

// TestQuota: a quota of either cluster refuses a move in one sentence, and changes nothing.
func TestQuota(t *testing.T) {
	for want, refuse := range map[string]func(*world, *v1alpha1.VolumeMove){
		"exceeded quota: few":     func(w *world, _ *v1alpha1.VolumeMove) { w.quota = true },
		"exceeded quota: secrets": func(w *world, _ *v1alpha1.VolumeMove) { w.secrets = true },
		"liqo-milan refuses the claim for the data: exceeded quota: theirs": func(w *world, move *v1alpha1.VolumeMove) {
			if target := w.claim(plan.TargetName(move)); target != nil && move.Status.Phase == v1alpha1.MovePreparing {
				w.must(client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused"}, InvolvedObject: corev1.ObjectReference{UID: target.UID},
					Reason: data.ReasonRefused, Message: "exceeded quota: theirs",
				})))
			}
		},
	} {
		w := newWorld(t, "worker", virtual)
		move := w.run(func(move *v1alpha1.VolumeMove) { refuse(w, move) })
		if move.Status.Phase != v1alpha1.MoveFailed || !strings.Contains(move.Status.Message, want) {
			t.Errorf("%s: %q, want %q", move.Status.Phase, move.Status.Message, want)
		}
		w.wantAt("worker")
	}
}

// TestLateScheduler: a scheduler that still knows the old volume places pods where the data was, and they can never start. The move ends only when it places
// no more, and has the placed ones created again.
func TestLateScheduler(t *testing.T) {
	w := newWorld(t, "worker", virtual)
	w.late = 10
	placed := false
	move := w.run(func(m *v1alpha1.VolumeMove) {
		if volume := w.volume(original); m.Status.Phase == v1alpha1.MoveSwitching && volume != nil && !placed {
			placed = true
			for name, controlled := range map[string]bool{"db-0": true, "shell": false} {
				pod := w.usedBy(name, controlled)
				pod.Status.Phase = corev1.PodPending
				w.must(w.Status().Update(t.Context(), pod))
			}
		}
		if m.Status.Phase == v1alpha1.MoveRemoving && w.late > 0 {
			t.Errorf("the move goes on while the scheduler is late")
		}
	})
	if !placed || move.Status.Phase != v1alpha1.MoveCompleted || !strings.Contains(move.Status.Message, "pod shell was placed on node worker") {
		t.Errorf("%s: %s", move.Status.Phase, move.Status.Message)
	}
	if pods := w.pods(); len(pods) != 1 || pods[0].Name != "shell" {
		t.Errorf("pods: %v", pods)
	}
	w.wantAt(virtual)
}

// TestPodsDeleted: all pods of a move are deleted, at any moment. It makes them again and goes on.
func TestPodsDeleted(t *testing.T) {
	for _, way := range directions {
		steps := 0
		newWorld(t, way[0], way[1]).run(func(*v1alpha1.VolumeMove) { steps++ })
		for at := range steps {
			t.Run(fmt.Sprintf("from %s to %s, step %d", way[0], way[1], at), func(t *testing.T) {
				t.Parallel()
				w, step := newWorld(t, way[0], way[1]), 0
				move := w.run(func(*v1alpha1.VolumeMove) {
					if step++; step == at {
						w.must(w.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace), client.HasLabels{labels.Move}))
					}
				})
				if move.Status.Phase != v1alpha1.MoveCompleted {
					t.Fatalf("%s: %s", move.Status.Phase, move.Status.Message)
				}
				w.wantAt(way[1])
			})
		}
	}
}
