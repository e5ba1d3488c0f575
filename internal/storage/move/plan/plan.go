// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

const (
	// ready is how long the target may take until it can receive.
	ready = 5 * time.Minute
	// gone is how long a move waits for pods that are being deleted, and for old data. Afterwards they go without the move: a peer that does not answer must
	// not hold it up.
	gone = time.Minute
	// evicts is how long the pods that use the claim may not be evicted, while none can start.
	evicts = 5 * time.Minute
	// again is how often what no watch shows is asked for again: an eviction, and the event of a provider that refuses a claim.
	again = 2 * time.Second
	// mostFailures is how many pods of a move may fail.
	mostFailures = 10
	// mostPasses is how many times the data is copied while pods use it, and shortPass how short a pass is that makes another one useless.
	mostPasses, shortPass = 5, 5

	// Protection is the finalizer with which Kubernetes keeps the volume of a claim.
	Protection = "kubernetes.io/pv-protection"
)

// Facts is what is known about a move, read from the API server, not from a cache: a volume that is nil does not exist. Objects of the move are those with its
// UID as label.
type Facts struct {
	Now  time.Time
	Move *v1alpha1.VolumeMove
	// Install is the namespace of Liqo, Image and PullPolicy are of the pods.
	Install, Image string
	PullPolicy     corev1.PullPolicy
	PullSecrets    []corev1.LocalObjectReference
	// Claim is the user's, Volume that of the claim when the move began.
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	Class  *storagev1.StorageClass
	// Node is the target. NoClass is why its provider has no storage class for the claim.
	Node    *corev1.Node
	NoClass string
	// Offloaded: the namespace is offloaded to the cluster of Node. Strategy is where its pods may run, empty for here only.
	Offloaded bool
	Strategy  string
	// Restricted: the namespace admits no pods that run as root.
	Restricted bool
	// Users are the pods that use the claim and have not ended, without those of the move. Attached: Kubernetes has attached the volume to a node.
	Users    []corev1.Pod
	Attached bool

	// Source and SourceVolume are the second record of the data, Target and TargetVolume where it goes.
	Source, Target             *corev1.PersistentVolumeClaim
	SourceVolume, TargetVolume *corev1.PersistentVolume
	// Real is the claim that holds the data of TargetVolume, in the storage namespace; nil at a provider.
	Real *corev1.PersistentVolumeClaim
	// Refused is why the provider refuses the claim of the target.
	Refused string
	// Granted: the controller has its rights in the namespace, which let it read no Secret. So the keys are made before the Service, and anew if there is none.
	Granted, Service, Fenced bool
	// Admitted is the address that the policy admits to the target.
	Admitted string
	// Server receives the data, Copies send it.
	Server *corev1.Pod
	Copies []corev1.Pod
	// Probe is the pod by which the scheduler proves that it knows the new place of the volume. Misplaced are the users that were placed by the old one.
	Probe     *corev1.Pod
	Misplaced []corev1.Pod
}

// Object is an object of Kubernetes.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is what is done with an object.
type Verb string

// The verbs. All may be repeated.
const (
	Create Verb = "create" // unless it exists
	Apply  Verb = "apply"
	Delete Verb = "delete" // exactly this one
	Evict  Verb = "evict"
	// Policy has a volume get the reclaim policy of the object, and the one that it remembers.
	Policy Verb = "policy"
	// Fence deletes the volume of a claim that is in use: it takes the finalizer of Kubernetes off.
	Fence Verb = "fence"
	// MakeKeys makes the keys of the move.
	MakeKeys Verb = "make the keys for"
	// Hold adds our finalizer to the move, Release removes it.
	Hold    Verb = "hold"
	Release Verb = "release"
	// Touch has Kubernetes look at the claim again, which it does every 15 seconds otherwise.
	Touch Verb = "touch"
	// Relabel has the claim that holds data name the claim of the user.
	Relabel Verb = "relabel"
)

// Do is one effect.
type Do struct {
	Verb   Verb
	Object Object
}

// Step is what to do next: all effects in order, then the status. The zero value is to wait. Each effect changes something, because the next step follows at once.
type Step struct {
	Do     []Do
	Status *v1alpha1.VolumeMoveStatus
	// Later: what was refused is repeated after a pause (Next).
	Later bool
}

// Finished reports whether a move needs no more steps.
func Finished(move *v1alpha1.VolumeMove) bool {
	return move.Status.Phase == v1alpha1.MoveCompleted || move.Status.Phase == v1alpha1.MoveFailed
}

// undoable reports whether the source is still the data.
func undoable(phase v1alpha1.MovePhase) bool {
	return phase != v1alpha1.MoveSwitching && phase != v1alpha1.MoveRemoving && phase != v1alpha1.MoveRestoring
}

// copies reports whether all claims and volumes of a move exist in a phase, and the claim does not have its new volume yet.
func copies(phase v1alpha1.MovePhase) bool {
	return phase == v1alpha1.MoveCopying || phase == v1alpha1.MoveStopping || phase == v1alpha1.MoveFinishing
}

// Plan decides the next step.
func Plan(f Facts) Step {
	m := f.Move
	held := slices.Contains(m.Finalizers, labels.FinalizerMove)
	switch phase := m.Status.Phase; {
	case Finished(m) && held:
		return do(Release, m)
	case Finished(m) || m.DeletionTimestamp != nil && !held:
		return Step{}
	case !held:
		return do(Hold, m)
	case m.DeletionTimestamp != nil && phase == "":
		return f.enter(v1alpha1.MoveFailed, "cancelled")
	case m.DeletionTimestamp != nil && undoable(phase):
		return f.enter(v1alpha1.MoveRestoring, "cancelled")
	case phase == "":
		return f.refuse()
	case undoable(phase) && !f.claimLives():
		return f.enter(v1alpha1.MoveRestoring, "the claim was deleted")
	case copies(phase) && f.missing() != "":
		return f.enter(v1alpha1.MoveRestoring, f.missing()+" was deleted")
	case phase == v1alpha1.MovePreparing:
		return f.prepare()
	case phase == v1alpha1.MoveMeasuring:
		return f.measure()
	case phase == v1alpha1.MoveCopying:
		return f.copy()
	case phase == v1alpha1.MoveStopping:
		return f.stop()
	case phase == v1alpha1.MoveFinishing:
		return f.finish()
	case phase == v1alpha1.MoveSwitching:
		return f.switchOver()
	case phase == v1alpha1.MoveRemoving:
		return f.remove()
	}
	return f.restore()
}

// Denied is the step after an API server of this cluster has refused an object of a move for good, for example by a quota: the move is taken back if that
// changes nothing yet. Nil: the effect is to be tried again.
func Denied(f Facts, why string) *Step {
	if f.Move.Status.Phase != v1alpha1.MovePreparing {
		return nil
	}
	s := f.enter(v1alpha1.MoveRestoring, why)
	return &s
}

// Kept is the step after the API server has refused to evict pods, as it does for a PodDisruptionBudget. Such a budget may never admit it: the replacement of a
// pod that was evicted cannot start while the volume is missing. So the move is taken back after some time.
func Kept(f Facts, why string) Step {
	if f.lasts() > evicts {
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("pods that use the claim could not be evicted for %v, and no other can start meanwhile; stop them, and move without --online: %s", evicts, why))
	}
	s := f.wait("waiting until the pods end: %s", why)
	s.Later = true
	return s
}

// Next is how long a move may wait for a change after a step: until one of its times is over. Zero: until something changes.
func Next(f Facts, step Step) (next time.Duration) {
	switch phase := f.Move.Status.Phase; {
	case len(step.Do) > 0 || step.Status != nil && step.Status.Phase != phase:
		return time.Millisecond
	case Finished(f.Move):
		return 0
	case step.Later || phase == v1alpha1.MovePreparing && f.TargetVolume == nil:
		next = again
	}
	var ends []time.Time
	if since := f.Move.Status.PhaseSince; since != nil {
		ends = append(ends, since.Add(gone), since.Add(ready), since.Add(evicts))
	}
	if f.Probe != nil {
		ends = append(ends, f.Probe.CreationTimestamp.Add(probeAgain))
	}
	for _, end := range ends {
		if left := end.Sub(f.Now) + time.Millisecond; left > 0 && (next == 0 || left < next) { // some times are over only after their last moment
			next = left
		}
	}
	return next
}

func do(verb Verb, objects ...Object) (s Step) {
	for _, object := range objects {
		s.Do = append(s.Do, Do{verb, object})
	}
	return s
}

// enter begins a phase.
func (f *Facts) enter(phase v1alpha1.MovePhase, message string) Step {
	status := f.Move.Status.DeepCopy()
	now := metav1.NewTime(f.Now)
	status.Phase, status.Message, status.PhaseSince = phase, message, &now
	switch phase {
	case v1alpha1.MoveStopping:
		status.StoppedAt = &now
	case v1alpha1.MoveRemoving:
		if status.StoppedAt != nil {
			status.StartedAt = &now
		}
	}
	return Step{Status: status}
}

// wait reports what the move waits for.
func (f *Facts) wait(format string, args ...any) Step {
	message := fmt.Sprintf(format, args...)
	if f.Move.Status.Message == message {
		return Step{}
	}
	status := f.Move.Status.DeepCopy()
	status.Message = message
	return Step{Status: status}
}

// lasts is how long the phase has lasted.
func (f *Facts) lasts() time.Duration {
	if f.Move.Status.PhaseSince == nil {
		return 0
	}
	return f.Now.Sub(f.Move.Status.PhaseSince.Time)
}

// missing names a claim or volume of the move that does not exist; empty if all do. Without the second record of the source, the volume could not be brought
// back; without the others, no copy can end.
func (f *Facts) missing() string {
	switch {
	case f.Source == nil || f.Source.DeletionTimestamp != nil:
		return "claim " + SourceName(f.Move)
	case f.Target == nil || f.Target.DeletionTimestamp != nil:
		return "claim " + TargetName(f.Move)
	case f.SourceVolume == nil || f.SourceVolume.DeletionTimestamp != nil:
		return "volume " + SourceVolumeName(f.Move)
	case f.TargetVolume == nil || f.TargetVolume.DeletionTimestamp != nil:
		return "the volume of claim " + TargetName(f.Move)
	}
	return ""
}

func (f *Facts) claimLives() bool {
	return f.Claim != nil && f.Claim.DeletionTimestamp == nil && f.Claim.UID == f.Move.Status.ClaimUID
}
