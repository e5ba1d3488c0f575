// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
)

// Reasons in the status of pods on a virtual node that do not run in the peer.
const (
	OffloadingBackOff = "OffloadingBackOff"
	OffloadingAborted = "OffloadingAborted"
	RequestNotMet     = "RequestNotMet"
	PredecessorEnding = "PredecessorEnding"
)

// The reasons why a pod is not Ready: it may run in the peer, it runs there, or it does not.
const (
	ClusterUnreachable = "ClusterUnreachable"
	NetworkUnreachable = "NetworkUnreachable"
	RemotePodMissing   = "RemotePodMissing"
)

// NotOffloaded returns the status of a pod on the virtual node whose namespace is not offloaded: Pending, or Failed if the pod has run. A finished pod
// keeps its status.
func NotOffloaded(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	if podphase.Final(status.Phase) {
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
		if slices.Contains(kubeletConditions, status.Conditions[i].Type) {
			setFalse(&status.Conditions[i], OffloadingAborted, now)
		}
	}
	return status
}

// NotMet returns the status of a pod that is not sent, because it asks for what it would not have in the peer: Pending.
func NotMet(local *corev1.Pod, why error) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = corev1.PodPending, RequestNotMet, why.Error()
	return status
}

// Gone returns the final status of a local pod that is being deleted, once its remote pod is gone. Controllers that hold the pod with a finalizer wait for it.
func Gone(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	if podphase.Final(status.Phase) {
		return status
	}
	status.Phase = corev1.PodFailed
	if allSucceeded(local) {
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

// Vanished returns the status of a pod that ran in the peer, that the peer no longer has, and that must not run twice: its controller creates another pod.
func Vanished(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := Gone(local, now)
	if !podphase.Final(local.Status.Phase) && status.Phase == corev1.PodFailed {
		status.Reason = OffloadingAborted
		status.Message = fmt.Sprintf("the pod is gone from virtual node %s and it is not known how it ended; it is not run again, because it may have finished",
			local.Spec.NodeName)
	}
	return status
}

// Unreachable returns the status of a pod whose peer does not answer. It may run there, and nothing here should send it requests.
func Unreachable(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	message := "the cluster of virtual node " + local.Spec.NodeName + " does not answer; the pod may run there"
	notReady(&status, ClusterUnreachable, message, now)
	for i := range status.Conditions {
		if condition := &status.Conditions[i]; condition.Type == corev1.PodReady && condition.Reason == NetworkUnreachable {
			condition.Reason, condition.Message = ClusterUnreachable, message // it has been not Ready since then
		}
	}
	return status
}

// Missing returns the status of a pod for which the peer has no pod at the moment.
func Missing(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	notReady(&status, RemotePodMissing, "the cluster of virtual node "+local.Spec.NodeName+" has no pod for this one at the moment; "+
		"the events of this pod, and the status of the NamespaceOffloading, have what prevents it", now)
	return status
}

// NetworkDown changes the status of a remote pod, as Of returns it, to not Ready: the pod runs, and this cluster does not reach it. A local pod that is not
// Ready already keeps the time since when.
func NetworkDown(status *corev1.PodStatus, local *corev1.Pod, now metav1.Time) {
	if podphase.Final(status.Phase) {
		return
	}
	for i := range local.Status.Conditions {
		if condition := &local.Status.Conditions[i]; condition.Type == corev1.PodReady && condition.Status == corev1.ConditionFalse {
			now = condition.LastTransitionTime
		}
	}
	notReady(status, NetworkUnreachable, "the network to the cluster of virtual node "+local.Spec.NodeName+" does not work; the pod runs there", now)
}

// notReady takes the readiness from a status.
func notReady(status *corev1.PodStatus, reason, message string, since metav1.Time) {
	for i := range status.Conditions {
		if condition := &status.Conditions[i]; condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			condition.Status, condition.LastTransitionTime, condition.Reason, condition.Message = corev1.ConditionFalse, since, reason, message
		}
	}
}

// allSucceeded reports whether all containers are known to have ended with success and for good.
func allSucceeded(local *corev1.Pod) bool {
	ended := byName(local.Spec.Containers, local.Status.ContainerStatuses)
	for _, container := range local.Spec.Containers {
		state := ended[container.Name].State.Terminated
		if state == nil || state.ExitCode != 0 || restarts(local.Spec.RestartPolicy, container, 0) {
			return false
		}
	}
	return true
}

// endContainers terminates the containers whose end was not observed, in the form that a kubelet uses.
func endContainers(status *corev1.PodStatus, now metav1.Time) {
	for _, all := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range all {
			all[i].Ready, all[i].Started = false, nil
			if all[i].State.Terminated != nil {
				continue
			}
			ended := &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "it is not known how the container ended", FinishedAt: now,
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
