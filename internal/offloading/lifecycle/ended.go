// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ended reports whether a pod in a terminal phase has ended for good. Otherwise the provider creates it again. Both clusters ask here, so that the consumer
// reports the end of exactly those pods that the provider does not create again.
//
// The phase alone does not decide: Kubernetes also gives a terminal phase to a pod that is being deleted, even to one that would be restarted for ever. A pod
// that is never restarted has ended with its processes, and so has a pod that succeeded where only failures are restarted. Any other pod has ended if its
// kubelet gave it up. A kubelet records that in status.reason: Evicted, Preempting, Terminated (its node shuts down), DeadlineExceeded, or why it did not
// admit the pod. A pod that was given up stays ended when it is deleted afterwards. What deletes pods that could run elsewhere sets no reason, but the
// condition DisruptionTarget: the eviction API, taints, preemption by the scheduler, and the collector of pods whose node is gone. A kubelet also sets that
// condition, with a reason of its own. In release 1.36: pkg/kubelet/{eviction,preemption,nodeshutdown,active_deadline.go}, pkg/controller/{podgc,
// tainteviction}, pkg/registry/core/pod/storage/eviction.go.
func Ended(policy corev1.RestartPolicy, pod *corev1.Pod) bool {
	if endedWithProcesses(policy, pod) {
		return true
	}
	if pod.DeletionTimestamp != nil && pod.Status.Reason == "" {
		return false
	}
	return !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason != corev1.PodReasonTerminationByKubelet
	})
}

// endedWithProcesses is the part of Ended for which the phase suffices.
func endedWithProcesses(policy corev1.RestartPolicy, pod *corev1.Pod) bool {
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && pod.Status.Phase == corev1.PodSucceeded
}
