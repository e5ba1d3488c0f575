// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

// switchOver gives the claim the data of the target, which is verified.
func (f *Facts) switchOver() Step {
	if f.TargetVolume == nil {
		return f.targetGone()
	}
	if f.Volume != nil && data.Name(f.Volume) == data.Name(f.TargetVolume) {
		return f.switched()
	}
	if reason := f.sourceIsCurrent(); reason != "" {
		return f.enter(v1alpha1.MoveRestoring, reason)
	}
	if pods := f.pods(); len(pods) > 0 { // one that goes on could write to the target while pods of the user do
		if alive := living(pods); len(alive) > 0 {
			return do(Delete, alive...)
		}
		return f.wait("waiting until the pods of the move end")
	}
	switch {
	case f.Volume != nil && f.Volume.DeletionTimestamp == nil && f.hasSource():
		return f.wait("volume %s came back with the data in %s, after the claim had that in %s; both may have changes, and both stay. Copy those in %s that are needed, and delete this PersistentVolume: the claim gets the data in %s again",
			f.Volume.Name, f.Move.Status.From, f.Move.Status.To, f.Move.Status.From, f.Move.Status.To)
	case f.Volume != nil:
		return f.displace()
	case data.IsRemote(f.TargetVolume) && f.TargetVolume.Annotations[labels.RemoteVolume] == "":
		return f.wait("waiting for the name of the volume in %s", f.Move.Status.To)
	case f.TargetVolume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || !f.handedOver():
		return do(Policy, f.handOver())
	}
	return do(Create, f.movedVolume())
}

// switched waits until pods find the data of the target, which the claim has.
func (f *Facts) switched() Step {
	if f.claimLives() && (f.Claim.Status.Phase != corev1.ClaimBound || f.Volume.Status.Phase != corev1.VolumeBound) {
		return f.returned()
	}
	if step, proven := f.placed(); f.claimLives() && !proven {
		return step
	}
	return f.enter(v1alpha1.MoveRemoving, fmt.Sprintf("the data is in %s", f.Move.Status.To))
}

// sourceIsCurrent is why a move that has verified the target goes back to the source: the user asks for it, or pods may have written there since. Empty once
// the claim can have had the data of the target: then pods may have written to that one.
func (f *Facts) sourceIsCurrent() string {
	switch active := f.active(); {
	case f.handedOver():
		return ""
	case f.Move.DeletionTimestamp != nil:
		return "cancelled"
	case f.Volume != nil && f.hasSource():
		return cameBack(f.Volume)
	case f.Volume == nil && (len(active) > 0 || f.Attached):
		return started(active)
	}
	return ""
}

// hasSource reports whether the volume of the claim has the data of the source. Without the record of the source it is assumed to.
func (f *Facts) hasSource() bool {
	return f.SourceVolume == nil || data.Name(f.Volume) == data.Name(f.SourceVolume)
}

// handedOver reports whether the claim has had the data of the target, or can have had it.
func (f *Facts) handedOver() bool {
	return f.Move.Status.StartedAt != nil || f.TargetVolume.Annotations[labels.ReclaimPolicy] != ""
}

// displace takes a volume away that came back with data of neither side. That data stays.
func (f *Facts) displace() Step {
	if f.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return do(Policy, withPolicy(f.Volume, corev1.PersistentVolumeReclaimRetain))
	}
	return f.fence()
}

// targetGone: the target was deleted after it was verified, but before the claim had it. So the source is the data.
func (f *Facts) targetGone() Step {
	if f.Volume == nil || f.SourceVolume == nil || data.Name(f.Volume) == data.Name(f.SourceVolume) {
		return f.enter(v1alpha1.MoveRestoring, "the volume of claim "+TargetName(f.Move)+" was deleted")
	}
	return f.enter(v1alpha1.MoveRemoving, fmt.Sprintf("the data is in %s", f.Move.Status.To))
}

// returned has the claim bound to the volume that came back.
func (f *Facts) returned() Step {
	if f.Claim.Annotations[labels.ReturnedVolume] != string(f.Volume.UID) {
		touched := f.Claim.DeepCopy()
		if touched.Annotations == nil {
			touched.Annotations = map[string]string{}
		}
		touched.Annotations[labels.ReturnedVolume] = string(f.Volume.UID)
		return do(Touch, touched)
	}
	if f.Move.Status.Phase == v1alpha1.MoveRestoring {
		return Step{} // its message is why
	}
	return f.wait("waiting until the claim is bound again")
}

// remove takes away what is left: the old data, unless it is to be kept, and all objects of the move.
func (f *Facts) remove() Step {
	switch reason := f.needed(); {
	case reason != "" && f.TargetVolume != nil:
		return f.enter(v1alpha1.MoveSwitching, reason)
	case reason != "":
		return f.wait("%s; the old copy stays, create that PersistentVolume again", reason)
	}
	if step, wait := f.dropPods(); wait {
		return step
	}
	again, stuck := f.replaced()
	if len(again) > 0 {
		return do(Delete, again...)
	}
	if f.Real != nil && f.Claim != nil && f.TargetVolume != nil {
		if want := namedFor(f.Real, f.Claim); want != nil {
			return do(Relabel, want)
		}
	}
	if step, wait := f.dropTarget(); wait {
		return step
	}
	old := f.SourceVolume
	switch {
	case old != nil && f.Source != nil && !f.Move.Spec.KeepSource && old.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return do(Policy, withPolicy(old, corev1.PersistentVolumeReclaimDelete))
	case f.Source != nil && f.Source.DeletionTimestamp == nil:
		return do(Delete, f.Source)
	case (f.Source != nil || old != nil && !f.Move.Spec.KeepSource) && f.lasts() < gone:
		return Step{}
	}
	if step, wait := f.clear(); wait {
		return step
	}
	message := f.Move.Status.Message + stuck
	switch {
	case old != nil && f.Move.Spec.KeepSource:
		message += fmt.Sprintf("; the old copy in %s is volume %s", f.Move.Status.From, old.Name)
	case old != nil:
		message += fmt.Sprintf("; the old copy is deleted as soon as %s answers", f.Move.Status.From)
	}
	return f.enter(v1alpha1.MoveCompleted, message)
}

// needed is why the old copy must stay: the claim does not have the data of the target.
func (f *Facts) needed() string {
	old := f.SourceVolume
	switch {
	case old == nil || !f.claimLives():
		return ""
	case f.Volume == nil:
		return fmt.Sprintf("volume %s is missing", f.Move.Status.Volume)
	case data.Name(f.Volume) == data.Name(old):
		return fmt.Sprintf("volume %s has the old data", f.Volume.Name)
	}
	return ""
}

// dropTarget deletes the claim of the target and its volume. If the user has deleted the claim meanwhile, the data goes as its policy requires, with this
// volume as its last record.
func (f *Facts) dropTarget() (s Step, wait bool) {
	deletes := f.SourceVolume != nil && f.SourceVolume.Annotations[labels.ReclaimPolicy] == string(corev1.PersistentVolumeReclaimDelete)
	if f.claimLives() || f.TargetVolume == nil || !deletes {
		return f.dropRecord(f.Target, f.TargetVolume)
	}
	switch {
	case f.Volume != nil:
		return Step{}, f.lasts() < gone
	case f.TargetVolume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return do(Policy, withPolicy(f.TargetVolume, corev1.PersistentVolumeReclaimDelete)), true
	case f.Target != nil && f.Target.DeletionTimestamp == nil:
		return do(Delete, f.Target), true
	}
	return Step{}, f.lasts() < gone
}

// dropPods deletes the pods of the move. wait is whether some are still there, and not for long: nothing that follows depends on their end.
func (f *Facts) dropPods() (s Step, wait bool) {
	pods := f.pods()
	if alive := living(pods); len(alive) > 0 {
		return do(Delete, alive...), true
	}
	return Step{}, len(pods) > 0 && f.lasts() < gone
}

// restore brings the volume back as it was, and takes away what the move made. Data of a claim that its user has deleted meanwhile goes as its policy requires.
//
// No pod of a move writes to the source. So the volume comes back although the pod that receives is still there, as it is while its provider does not answer.
func (f *Facts) restore() Step {
	if alive := living(f.pods()); len(alive) > 0 {
		return do(Delete, alive...)
	}
	lives, record := f.claimLives(), f.SourceVolume
	policy := corev1.PersistentVolumeReclaimPolicy("")
	if record != nil {
		policy = corev1.PersistentVolumeReclaimPolicy(record.Annotations[labels.ReclaimPolicy])
	}
	switch {
	case f.Volume != nil && f.TargetVolume != nil && data.Name(f.Volume) == data.Name(f.TargetVolume):
		return f.enter(v1alpha1.MoveSwitching, "") // an earlier leader was late to switch: pods may have written there
	case f.Volume != nil && lives && !f.hasSource():
		return f.displace()
	case f.Volume != nil && f.Volume.DeletionTimestamp != nil && lives:
		return f.fence() // it cannot be saved any more, and comes back from the record
	case f.Volume == nil && lives && record != nil && f.reading():
		return Step{}
	case f.Volume == nil && lives && record != nil:
		return do(Create, f.oldVolume())
	case f.Volume != nil && policy != "" && f.Volume.DeletionTimestamp == nil && f.Volume.Spec.PersistentVolumeReclaimPolicy != policy:
		return do(Policy, withPolicy(f.Volume, policy))
	case lives && f.Volume != nil && f.Claim.Status.Phase != corev1.ClaimBound:
		return f.returned()
	case len(f.pods()) > 0 && f.lasts() < gone:
		return Step{} // the target has no other user then
	case f.TargetVolume != nil && f.Target != nil && f.TargetVolume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return do(Policy, withPolicy(f.TargetVolume, corev1.PersistentVolumeReclaimDelete))
	case f.Target != nil && f.Target.DeletionTimestamp == nil:
		return do(Delete, f.Target)
	case (f.Target != nil || f.TargetVolume != nil) && f.lasts() < gone:
		return Step{}
	case !lives && record != nil && record.Spec.PersistentVolumeReclaimPolicy != policy:
		return do(Policy, withPolicy(record, policy))
	case !lives && f.Source != nil && f.Source.DeletionTimestamp == nil:
		return do(Delete, f.Source)
	case !lives && f.Source != nil && f.lasts() < gone:
		return Step{}
	}
	if lives {
		if step, wait := f.dropRecord(f.Source, record); wait {
			return step
		}
	}
	if step, wait := f.clear(); wait {
		return step
	}
	message := f.Move.Status.Message
	if f.Target != nil || f.TargetVolume != nil {
		message += fmt.Sprintf("; the copy in %s is being deleted", f.Move.Status.To)
	}
	return f.enter(v1alpha1.MoveFailed, message)
}

// reading reports whether the data of this cluster is still mounted by a pod of the move. A driver could attach it to a second node, because the volume that
// comes back is another object. At a provider both are the same object, and a provider that does not answer starts no pod.
func (f *Facts) reading() bool {
	return len(f.Copies) > 0 && !data.IsRemote(f.SourceVolume)
}

// dropRecord deletes a claim of the move and its volume, which is Retain: the data stays. wait is whether something is still there. A claim stays as long as
// a pod that uses it: after some time both are being deleted, and go without the move.
func (f *Facts) dropRecord(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) (s Step, wait bool) {
	switch {
	case volume != nil && volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return do(Policy, withPolicy(volume, corev1.PersistentVolumeReclaimRetain)), true
	case claim != nil && claim.DeletionTimestamp == nil:
		return do(Delete, claim), true
	case volume != nil && volume.DeletionTimestamp == nil && (claim == nil || f.lasts() >= gone):
		return do(Delete, volume), true
	}
	return Step{}, (claim != nil || volume != nil) && f.lasts() < gone
}

// clear deletes the other objects of the move, its rights last.
func (f *Facts) clear() (s Step, wait bool) {
	if !f.Granted {
		return Step{}, false
	}
	s = do(Delete, f.secret(labels.MoveRoleSource), f.secret(labels.MoveRoleTarget))
	if !f.Service && !f.Fenced {
		s.Do = append(s.Do, Do{Delete, f.grant()})
	}
	if f.Service {
		s.Do = append(s.Do, Do{Delete, f.service()})
	}
	if f.Fenced {
		s.Do = append(s.Do, Do{Delete, f.policy("")})
	}
	return s, true
}
