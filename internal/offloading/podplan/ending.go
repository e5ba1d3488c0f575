// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// period returns the grace period, in seconds, that the ShadowPod is to carry; 0 if the peer's pod ends in time without. An ordinary deletion has the period of
// the manifest, which the peer has, and costs no further request. As in Kubernetes, a deletion that has begun gets a shorter period, never a longer one.
func (f *Facts) period() int64 {
	wanted, ok := f.wanted()
	if !ok {
		return 0
	}
	has, announced := lifecycle.Announced(f.Shadow)
	if !announced && f.isOfLocal() {
		has, announced = Manifest(f.Local), true
	}
	if announced && (wanted == has || wanted > has && f.Shadow.DeletionTimestamp != nil) {
		return 0
	}
	return wanted
}

// wanted returns with which grace period the local pod of the ShadowPod is, or was, deleted. known is false if that follows from its manifest.
func (f *Facts) wanted() (seconds int64, known bool) {
	if !f.isOfLocal() {
		return lifecycle.LeastPeriod, f.Forced
	}
	if f.Local.DeletionTimestamp == nil || f.Local.DeletionGracePeriodSeconds == nil || f.finished() {
		return 0, false // of a pod in a terminal phase, the API server makes the period zero
	}
	return max(*f.Local.DeletionGracePeriodSeconds, lifecycle.LeastPeriod), true
}

// isOfLocal reports whether there is a ShadowPod, and it is that of the local pod.
func (f *Facts) isOfLocal() bool { return f.Local != nil && f.shadow() != nil }

// Manifest returns the grace period of the manifest of a pod.
func Manifest(local *corev1.Pod) int64 {
	if own := local.Spec.TerminationGracePeriodSeconds; own != nil {
		return max(*own, lifecycle.LeastPeriod)
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// waits reports whether a pod that has not started waits for its predecessor: the peer still has a pod, or the ShadowPod, of an earlier local pod of its name.
func (f *Facts) waits() bool {
	if f.Local.DeletionTimestamp != nil || !f.idle() || f.finished() {
		return false
	}
	mine := string(f.Local.UID)
	return f.Shadow != nil && f.Mapping.Reflected(f.Shadow) && f.Shadow.Annotations[labels.Fence] != mine ||
		f.predecessor() && f.Remote.Annotations[labels.Fence] != mine
}

// waited reports whether a pod shows that it waits for its predecessor.
func (f *Facts) waited() bool { return f.Local.Status.Reason == podstatus.PredecessorEnding }
