// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

// movedAt is when the phase of the rows began.
var movedAt = time.Unix(1_800_000_000, 0)

// during are the facts of a move that goes well, in a phase: the data of this cluster goes to liqo-milan, and the user's claim has its volume until
// the fence.
func during(phase v1alpha1.MovePhase) *Facts {
	since := metav1.NewTime(movedAt)
	move := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{
		Name: "data", Namespace: "shop", UID: "01234567-89ab", Finalizers: []string{labels.FinalizerMove},
	}}
	move.Spec.TargetNode = "liqo-milan"
	move.Status = v1alpha1.VolumeMoveStatus{Phase: phase, ClaimUID: "claim", Volume: "pvc-claim", From: here, To: "liqo-milan", PhaseSince: &since}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "claim"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
	}
	volume := func(name string, policy corev1.PersistentVolumeReclaimPolicy, annotations map[string]string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "of-volume", Finalizers: []string{Protection}, Annotations: annotations},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy, ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: name}},
			Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
	}
	f := &Facts{
		Now: movedAt, Move: move, Claim: claim("data", "pvc-claim"),
		Source: claim(SourceName(move), SourceVolumeName(move)), Target: claim(TargetName(move), "pvc-target"),
		Volume: volume("pvc-claim", corev1.PersistentVolumeReclaimDelete, nil),
		SourceVolume: volume(SourceVolumeName(move), corev1.PersistentVolumeReclaimRetain, map[string]string{
			labels.VolumeData: "pvc-claim", labels.ReclaimPolicy: string(corev1.PersistentVolumeReclaimDelete),
		}),
		TargetVolume: volume("pvc-target", corev1.PersistentVolumeReclaimDelete, map[string]string{labels.RemoteVolume: "disk"}),
		Granted:      true, Service: true, Fenced: true, Admitted: "10.0.0.9/32",
		Server: aPod("server", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		}),
	}
	f.TargetVolume.Labels = map[string]string{labels.RemoteClusterID: "milan"}
	switch phase {
	case v1alpha1.MoveFinishing, v1alpha1.MoveSwitching, v1alpha1.MoveRestoring:
		f.Volume, f.Claim.Status.Phase = nil, corev1.ClaimLost
	case v1alpha1.MoveRemoving:
		f.Volume.Annotations = map[string]string{labels.VolumeData: "pvc-target"}
	}
	if phase != v1alpha1.MovePreparing && !copies(phase) {
		f.Server = nil
	}
	return f
}

func aPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	change(pod)
	return pod
}

// aPass is the pod of the next pass, which has ended so.
func aPass(phase corev1.PodPhase, message string) func(*Facts) {
	return func(f *Facts) {
		f.Copies = append(f.Copies, *aPod(f.copyName(), func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: phase, PodIP: "10.0.0.9", ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
			}}}
		}))
	}
}

// aUser is a pod of the user on a node, or on none.
func aUser(node string) func(*Facts) {
	return func(f *Facts) {
		f.Users = append(f.Users, *aPod("db-0", func(p *corev1.Pod) { p.Spec.NodeName = node }))
	}
}

func after(d time.Duration) func(*Facts) { return func(f *Facts) { f.Now = f.Now.Add(d) } }

// leaving marks an object as being deleted.
func leaving(object metav1.Object) { object.SetDeletionTimestamp(&metav1.Time{Time: movedAt}) }

// inWords writes a step as a line: what is done with which object, then the phase, and the message.
func inWords(f *Facts, s Step) string {
	var all []string
	for _, one := range s.Do {
		kind := reflect.TypeOf(one.Object).Elem().Name()
		word := fmt.Sprintf("%s %s %s", one.Verb, kind, one.Object.GetName())
		if volume, ok := one.Object.(*corev1.PersistentVolume); ok && one.Verb != Delete {
			word += fmt.Sprintf(" (%s, data %s)", volume.Spec.PersistentVolumeReclaimPolicy, data.Name(volume))
		}
		all = append(all, word)
	}
	if s.Status != nil && len(s.Status.Passes) != len(f.Move.Status.Passes) {
		all = append(all, fmt.Sprintf("pass %d", len(s.Status.Passes)))
	}
	switch {
	case s.Status == nil && len(all) == 0:
		return "wait"
	case s.Status != nil && s.Status.Phase != f.Move.Status.Phase:
		all = append(all, fmt.Sprintf("then %s: %s", s.Status.Phase, s.Status.Message))
	case s.Status != nil:
		all = append(all, "wait: "+s.Status.Message)
	}
	return strings.TrimSuffix(strings.Join(all, "; "), ": ")
}

// TestSteps: what a move does next, by what it sees.
func TestSteps(t *testing.T) {
	for _, all := range []map[v1alpha1.MovePhase][]step{steps, endings, edges} {
		for phase, rows := range all {
			for _, row := range rows {
				f := during(phase)
				for _, apply := range row.changes {
					apply(f)
				}
				if got := inWords(f, Plan(*f)); got != row.want {
					t.Errorf("%s: %s:\n got %s\nwant %s", phase, row.name, got, row.want)
				}
			}
		}
	}
}

func handedOver(f *Facts) {
	f.TargetVolume.Annotations[labels.ReclaimPolicy] = string(f.TargetVolume.Spec.PersistentVolumeReclaimPolicy)
	f.TargetVolume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func online(f *Facts) { f.Move.Spec.Online = true }
func keptVolume(f *Facts) {
	f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func noVolume(f *Facts) { f.Volume = nil }

// back is the volume of the claim as it was, newData the one with the data of the target, otherData one with neither.
func back(f *Facts) {
	f.Volume, f.Claim.Status.Phase = during("").Volume, corev1.ClaimBound
}

func newData(f *Facts) {
	back(f)
	f.Volume.Annotations = map[string]string{labels.VolumeData: "pvc-target"}
	handedOver(f)
}

func otherData(f *Facts) {
	back(f)
	f.Volume.Annotations = map[string]string{labels.VolumeData: "pvc-other"}
}

func touched(f *Facts) {
	f.Claim.Annotations = map[string]string{labels.ReturnedVolume: string(f.Volume.UID)}
}

func affine(f *Facts) {
	f.Volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
}

// probed: the scheduler has placed the probe on a node, or refused to.
func probed(node string, age time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Probe = aPod("probe", func(p *corev1.Pod) {
			p.Spec.NodeName, p.CreationTimestamp = node, metav1.NewTime(f.Now.Add(-age))
			if node == "" {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			}
		})
	}
}

// kept: the volume of the target is Retain, so that its record can go; noTarget and noSource: claim and volume are gone; oldGoes: the old data is
// deleted with its record; cleared: the other objects are gone.
func kept(f *Facts) {
	f.TargetVolume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func noTarget(f *Facts) { f.Target, f.TargetVolume = nil, nil }
func noSource(f *Facts) { f.Source, f.SourceVolume = nil, nil }
func oldGoes(f *Facts) {
	f.SourceVolume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}
func cleared(f *Facts) { f.Granted, f.Service, f.Fenced = false, false, false }

func misplaced(controlled bool) func(*Facts) {
	return func(f *Facts) {
		f.Misplaced = []corev1.Pod{*aPod("late", func(p *corev1.Pod) {
			p.Spec.NodeName = "worker"
			if controlled {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
			}
		})}
	}
}
