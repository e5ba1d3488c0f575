// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestAttachedOnline: a pod starts while an online move copies, and a driver attaches its volume. It is detached only when the pod ends, and a move ends pods only
// after the fence: so the move is taken back. Without a pod, the volume is detached in a moment.
func TestAttachedOnline(t *testing.T) {
	since := metav1.NewTime(time.Unix(1_800_000_000, 0))
	move := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "01234567-89ab", Finalizers: []string{labels.FinalizerMove}}}
	move.Spec.Online = true
	move.Status = v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveStopping, ClaimUID: "claim", Volume: "pvc-claim", PhaseSince: &since}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim"}}
	for _, pod := range []string{"db-0", ""} {
		f := Facts{
			Now: since.Time, Move: move, Claim: claim, Source: claim, Target: claim,
			Volume: &corev1.PersistentVolume{}, SourceVolume: &corev1.PersistentVolume{}, TargetVolume: &corev1.PersistentVolume{}, Attached: true,
		}
		want := v1alpha1.MoveStopping
		if pod != "" {
			f.Users, want = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{NodeName: "worker"}}}, v1alpha1.MoveRestoring
		}
		step := Plan(f)
		if step.Status == nil || step.Status.Phase != want || !strings.Contains(step.Status.Message, "tached") || len(step.Do) > 0 {
			t.Errorf("pod %q: %+v, want phase %s", pod, step, want)
		}
	}
}
