// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/kube/podphase"
)

// Stuck is a state of a remote pod that may last for ever.
type Stuck int

const (
	// NotStuck: it runs, starts or has ended.
	NotStuck Stuck = iota
	// Ending: it is being deleted. A kubelet ends a pod within its grace period, and reports that; without its node, the pod stays.
	Ending
	// Homeless: no node takes it.
	Homeless
)

// StuckOf returns the state of a remote pod.
func StuckOf(remote *corev1.Pod) Stuck {
	switch {
	case remote == nil || podphase.Final(remote.Status.Phase):
		return NotStuck
	case remote.DeletionTimestamp != nil:
		return Ending
	}
	for i := range remote.Status.Conditions {
		condition := &remote.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return Homeless
		}
	}
	return NotStuck
}

// maxPeriod bounds the grace period that is waited for. The peer decides it.
const maxPeriod = 7 * 24 * time.Hour

// stuck reports whether a pod that has run is replaced because its remote pod is stuck, and how long to wait before that: its node there is lost, or
// the peer has evicted it and no other node takes it. Kubernetes deletes pods in such cases, so that their controllers replace them where there is
// capacity, and so do we. A pod stays if nothing is gained: no controller replaces it, or only on this node, or once it has ended. One that is not
// restarted for ever stays as well: its controller would count a failure.
func (f *Facts) stuck(remote *corev1.Pod) (wait time.Duration, is bool) {
	owner, state := metav1.GetControllerOfNoCopy(f.Local), StuckOf(remote)
	ran := f.Memory.Started || f.Local.Status.StartTime != nil
	if state == NotStuck || f.StuckSince.IsZero() || f.StuckTimeout == 0 || f.Terminating ||
		f.Local.DeletionTimestamp != nil || f.finished() || !ran || owner == nil || owner.Kind == "DaemonSet" {
		return 0, false
	}
	timeout := f.StuckTimeout
	switch policy := f.Local.Spec.RestartPolicy; {
	case state == Ending && owner.Kind == "StatefulSet", state == Homeless && policy != corev1.RestartPolicyAlways && policy != "":
		return 0, false
	case state == Ending && remote.DeletionGracePeriodSeconds != nil:
		timeout += time.Duration(min(max(*remote.DeletionGracePeriodSeconds, 0), int64(maxPeriod/time.Second))) * time.Second
	}
	return max(f.StuckSince.Add(timeout).Sub(f.Now), 0), true
}
