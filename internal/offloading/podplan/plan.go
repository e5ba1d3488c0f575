// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// Step is what to do about one pod. The worker of each direction executes its half.
type Step struct {
	Outbound Outbound
	Inbound  Inbound
}

// Outbound is what to do in the peer.
type Outbound struct {
	// Retry: a cache that decides is not current. Try again after a backoff.
	Retry bool
	// Delete the ShadowPod, so that it stays as long as its pod: no other pod gets the name meanwhile.
	Delete bool
	// Period, in seconds, is the grace period of the deletion, to be announced before the ShadowPod is deleted, or while it is being deleted; 0 if the
	// peer knows it.
	Period int64
	// Unmanaged: a ShadowPod that is not ours has the name. Report that, and leave it alone.
	Unmanaged bool
	// Refuse: the pod asks for what it would not have in the peer. Report that, and send nothing.
	Refuse bool
	// Create the ShadowPod, once what it needs is there.
	Create bool
	// Amend the ShadowPod, if it differs from its intent.
	Amend bool
}

// Plan returns the next step of one pod. The rules:
//   - a ShadowPod is created only if a current cache has neither it nor the pod of an earlier one, and the pod has not ended;
//   - what ended for good, or may have, never runs again, and its end is reported;
//   - a pod that the peer does not have is not sent if it would lack there what keeps it isolated or decides where it runs; one that the peer has goes on;
//   - an object in the peer that is not ours is never touched;
//   - a pod that has run, and is stuck in the peer, is deleted here, so that its controller replaces it;
//   - a local pod is removed only if it is being deleted and nothing of it is left in the peer.
func Plan(f *Facts) Step {
	return Step{Outbound: planOutbound(f), Inbound: planInbound(f)}
}

func planOutbound(f *Facts) Outbound {
	if f.Offloading != Mapped || !f.Compared {
		return Outbound{}
	}
	if !f.LocalCurrent {
		return Outbound{Retry: true}
	}
	local, ours := f.Local, f.Shadow != nil && f.Mapping.Reflected(f.Shadow)
	switch {
	case ours && f.Shadow.DeletionTimestamp != nil:
		return Outbound{Period: f.period()} // its deletion is an event
	case ours && (local == nil || local.DeletionTimestamp != nil || f.shadow() == nil):
		return Outbound{Delete: true, Period: f.period()}
	case ours && f.finished() && f.runsRemotely():
		// The local pod has failed here, for example because the node was lost, and a replacement may run already: end the remote one.
		return Outbound{Delete: true}
	case local == nil || local.DeletionTimestamp != nil || f.Terminating || f.finished():
		return Outbound{}
	case f.Shadow != nil && !ours:
		return Outbound{Unmanaged: true}
	case f.Shadow == nil:
		return planMissing(f)
	}
	return Outbound{Amend: true}
}

// planMissing decides about a pod that has to run and has no ShadowPod.
func planMissing(f *Facts) Outbound {
	switch {
	case !f.Shadows.Current:
		return Outbound{Retry: true}
	case f.predecessor():
		return Outbound{} // its deletion is an event
	case f.end() != nil || f.vanished():
		return Outbound{} // it must not run again: Inbound reports its end
	case f.unmet():
		return Outbound{Refuse: true}
	}
	return Outbound{Create: true}
}

// unmet reports whether the pod asks for what it would not have in the peer, and its namespace does not let it run without. One that was sent before its
// namespace did that is sent.
func (f *Facts) unmet() bool {
	return !f.Memory.Sent && len(podspec.Unmet(f.Local, f.RunWithout)) > 0
}

// predecessor reports whether the peer still has a pod of ours with this name: that of another local pod, or of this one if its ShadowPod was lost.
func (f *Facts) predecessor() bool {
	return f.Remote != nil && f.Remote.Labels[labels.Origin] == f.Mapping.LocalID && f.Remote.Annotations[labels.Fence] != ""
}

// runsRemotely reports whether the remote pod of the local pod runs.
func (f *Facts) runsRemotely() bool {
	remote := f.remote()
	return remote != nil && f.Remotes.Current && !podphase.Final(remote.Status.Phase) && remote.DeletionTimestamp == nil
}

// Ready reports whether a pod with this status is Ready.
func Ready(status *corev1.PodStatus) bool { return readiness(status).Status == corev1.ConditionTrue }

// readiness returns the condition Ready; the zero value if there is none.
func readiness(status *corev1.PodStatus) corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReady {
			return status.Conditions[i]
		}
	}
	return corev1.PodCondition{}
}
