// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
	"liqo.io/liqo/internal/storage/move/report"
)

// refuse refuses what cannot work, before anything is made.
func (f *Facts) refuse() Step {
	if reason := f.refused(); reason != "" {
		return f.enter(v1alpha1.MoveFailed, reason)
	}
	s := f.enter(v1alpha1.MovePreparing, "making the target")
	s.Status.ClaimUID, s.Status.Volume, s.Status.From, s.Status.To = f.Claim.UID, f.Claim.Spec.VolumeName, placeOf(f.Volume), f.place()
	if !data.IsRemote(f.Volume) && len(f.Users) > 0 {
		s.Status.Node = f.Users[0].Spec.NodeName
	}
	return s
}

// prepare makes the second record of the source, the target, and the pod that receives.
func (f *Facts) prepare() Step {
	if !f.Granted {
		return do(Create, f.grant())
	}
	if f.Move.Spec.DryRun {
		return f.enter(v1alpha1.MoveMeasuring, "counting the files")
	}
	if f.Volume == nil {
		return f.volumeGone()
	}
	var s Step
	add := func(missing bool, verb Verb, object func() Object) {
		if missing {
			s.Do = append(s.Do, Do{verb, object()})
		}
	}
	add(f.Target == nil, Create, f.targetClaim)
	add(f.SourceVolume == nil, Create, f.sourceVolume)
	add(f.Source == nil, Create, f.sourceClaim)
	add(!f.Service, MakeKeys, func() Object { return f.Move })
	add(!f.Service, Create, f.service)
	add(!f.Fenced, Apply, func() Object { return f.policy("") })
	if len(s.Do) > 0 {
		return s
	}
	if f.Refused != "" {
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("%s refuses the claim for the data: %s", f.Move.Status.To, f.Refused))
	}
	add(f.Server == nil && f.TargetVolume != nil, Create, f.server)
	late := f.lasts() > ready
	switch {
	case len(s.Do) > 0:
		return s
	case over(f.Server) && !late:
		return do(Delete, f.Server)
	case f.TargetVolume != nil && f.Source.Status.Phase == corev1.ClaimBound && report.Ready(f.Server):
		return f.enter(v1alpha1.MoveCopying, "")
	case f.TargetVolume == nil && late:
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("%s made no volume for the data within %v; see the events of claim %s", f.Move.Status.To, ready, f.Target.Name))
	case f.TargetVolume == nil:
		return f.wait("waiting for a volume in %s: claim %s", f.Move.Status.To, f.Target.Name)
	case late:
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("the pod that is to receive the data was not ready within %v: %s", ready, report.Waiting(f.Server)))
	}
	return f.wait("waiting for the target: %s", report.Waiting(f.Server))
}

// volumeGone: another client has deleted the volume before the fence. It comes back from its second record, if that exists.
func (f *Facts) volumeGone() Step {
	return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("volume %s of claim %s was deleted", f.Move.Status.Volume, f.Move.Name))
}

// measure counts the files, for a dry run.
func (f *Facts) measure() Step {
	result, step := f.pass(modeMeasure)
	if result == nil {
		return step
	}
	s := f.enter(v1alpha1.MoveRemoving, fmt.Sprintf("dry run: nothing was changed; %d files, %d bytes would go from %s to %s", result.All.Files, result.All.Bytes, f.Move.Status.From, f.Move.Status.To))
	s.Status.Estimate = &result.All
	return s
}

// copy copies once, or, while pods use the volume, until another pass would be short.
func (f *Facts) copy() Step {
	if !f.Move.Spec.Online && len(f.active()) > 0 {
		return f.enter(v1alpha1.MoveRestoring, started(f.active()))
	}
	if f.Volume == nil {
		return f.volumeGone()
	}
	if volume := f.Volume; string(volume.Spec.PersistentVolumeReclaimPolicy) != f.SourceVolume.Annotations[labels.ReclaimPolicy] {
		return do(Policy, f.remembered(volume.Spec.PersistentVolumeReclaimPolicy)) // the user has changed it
	}
	result, step := f.pass(modeCopy)
	if result == nil {
		return step
	}
	status := f.Move.Status.DeepCopy()
	status.Passes, status.Message = append(status.Passes, *result), ""
	if f.Move.Spec.Online && result.Seconds > shortPass && len(status.Passes) < mostPasses {
		return Step{Status: status}
	}
	s := f.enter(v1alpha1.MoveStopping, "")
	s.Status.Passes = status.Passes
	return s
}

// stop takes the volume away, so that no pod can start on it, and has the pods end that use it.
func (f *Facts) stop() Step {
	if len(f.Copies) > 0 { // they use the claim as well
		if alive := living(each(f.Copies)); len(alive) > 0 {
			return do(Delete, alive...)
		}
		return f.wait("waiting until the pods that copy end")
	}
	if f.Volume != nil {
		switch {
		case f.Volume.DeletionTimestamp != nil:
			return f.fence()
		case !f.Move.Spec.Online && len(f.active()) > 0:
			return f.enter(v1alpha1.MoveRestoring, started(f.active()))
		case f.Attached && len(f.active()) > 0:
			return f.enter(v1alpha1.MoveRestoring, f.attached())
		case f.Attached:
			return f.wait("waiting until the volume is detached from its node")
		case f.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
			return do(Policy, withPolicy(f.Volume, corev1.PersistentVolumeReclaimRetain))
		}
		return f.fence()
	}
	active := f.active()
	switch {
	case len(active) == 0 && !f.Attached:
		return f.enter(v1alpha1.MoveFinishing, "")
	case !f.Move.Spec.Online && len(active) > 0:
		return f.enter(v1alpha1.MoveRestoring, started(active))
	case len(active) == 0:
		return f.wait("waiting until the volume is detached from its node")
	}
	s := f.wait("waiting until the pods end: %s", names(active))
	for i := range active {
		if active[i].DeletionTimestamp == nil {
			s.Do = append(s.Do, Do{Evict, &active[i]})
		}
	}
	return s
}

func cameBack(volume *corev1.PersistentVolume) string {
	return fmt.Sprintf("volume %s came back while the move had taken it away", volume.Name)
}

// fence deletes the volume of the claim, which is Retain or cannot be saved any more.
func (f *Facts) fence() Step {
	switch kept := f.Volume.DeletionTimestamp != nil && !slices.Contains(f.Volume.Finalizers, Protection); {
	case kept && f.Move.Status.Phase == v1alpha1.MoveRestoring:
		return Step{} // its message is why
	case kept:
		return f.wait("volume %s is being deleted; its finalizers are %s", f.Volume.Name, strings.Join(f.Volume.Finalizers, ", "))
	}
	return do(Fence, f.Volume)
}

// finish copies the last differences and verifies every file. No pod of the user can write.
func (f *Facts) finish() Step {
	switch active := f.active(); {
	case f.Volume != nil:
		return f.enter(v1alpha1.MoveRestoring, cameBack(f.Volume))
	case len(active) > 0 || f.Attached:
		return f.enter(v1alpha1.MoveRestoring, started(active))
	}
	result, step := f.pass(modeFinish)
	if result == nil {
		return step
	}
	s := f.enter(v1alpha1.MoveSwitching, "")
	s.Status.Passes = append(s.Status.Passes, *result)
	return s
}
