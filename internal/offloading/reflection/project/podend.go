// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// Reasons of pods on a virtual node that do not run in the peer.
const (
	OffloadingBackOff = "OffloadingBackOff"
	OffloadingAborted = "OffloadingAborted"
)

// NotOffloaded is how a pod stands that is on the virtual node while its namespace is not offloaded: it waits, or if it ran before, has
// failed. One that has finished stays as it is.
func NotOffloaded(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	if finished(status.Phase) {
		return status
	}
	status.Message = fmt.Sprintf("namespace %s is not offloaded to virtual node %s; to run the pod there: liqoctl offload namespace %s; "+
		"to keep it away: node affinity %s NotIn %s", local.Namespace, local.Spec.NodeName, local.Namespace, labels.Type, labels.TypeVirtualNode)
	if status.Phase == "" || status.Phase == corev1.PodPending {
		status.Phase, status.Reason = corev1.PodPending, OffloadingBackOff
		status.PodIP, status.PodIPs = "", nil
		return status
	}
	status.Phase, status.Reason = corev1.PodFailed, OffloadingAborted
	endContainers(&status, now)
	for i := range status.Conditions {
		if slices.Contains(ofKubelet, status.Conditions[i].Type) {
			setFalse(&status.Conditions[i], OffloadingAborted, now)
		}
	}
	return status
}

// Gone is how a pod stands that is being deleted, after the peer's pod is gone: it has ended. Controllers that hold it with a finalizer wait
// for that.
func Gone(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	if finished(status.Phase) {
		return status
	}
	status.Phase = corev1.PodFailed
	if well(local) {
		status.Phase = corev1.PodSucceeded
	}
	endContainers(&status, now)
	for i := range status.Conditions {
		if kind := status.Conditions[i].Type; kind == corev1.PodReady || kind == corev1.ContainersReady {
			setFalse(&status.Conditions[i], "PodCompleted", now)
		}
	}
	return status
}

// Vanished is how a pod stands of which the peer knows nothing any more, although it ran there and must not run twice: whoever wants its work
// done makes another one.
func Vanished(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := Gone(local, now)
	if !finished(local.Status.Phase) && status.Phase == corev1.PodFailed {
		status.Reason = OffloadingAborted
		status.Message = fmt.Sprintf("the pod is gone from virtual node %s, and how it ended is not known; it is not run again, as it may have finished", local.Spec.NodeName)
	}
	return status
}

// well says whether all containers are known to have ended well, and for good.
func well(local *corev1.Pod) bool {
	ended := byName(local.Spec.Containers, local.Status.ContainerStatuses)
	for _, container := range local.Spec.Containers {
		state := ended[container.Name].State.Terminated
		if state == nil || state.ExitCode != 0 || restarts(local.Spec.RestartPolicy, container, 0) {
			return false
		}
	}
	return true
}

// endContainers ends those of which nobody can tell any more how they ended, as a kubelet does.
func endContainers(status *corev1.PodStatus, now metav1.Time) {
	for _, all := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range all {
			all[i].Ready, all[i].Started = false, nil
			if all[i].State.Terminated != nil {
				continue
			}
			ended := &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "how the container ended is not known", FinishedAt: now,
			}
			if running := all[i].State.Running; running != nil {
				ended.StartedAt = running.StartedAt
			}
			all[i].State = corev1.ContainerState{Terminated: ended}
		}
	}
}

func setFalse(condition *corev1.PodCondition, reason string, now metav1.Time) {
	if condition.Status != corev1.ConditionFalse {
		condition.Status, condition.LastTransitionTime = corev1.ConditionFalse, now
		condition.Reason, condition.Message = reason, ""
	}
}
