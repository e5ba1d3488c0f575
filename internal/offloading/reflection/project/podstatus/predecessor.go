// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PredecessorGone is the condition of a pod that waits for an earlier pod of its name, and not that of any other.
const PredecessorGone corev1.PodConditionType = "virtualkubelet.liqo.io/PredecessorGone"

// Waiting returns the status of a pod for which the peer cannot create a pod yet: an earlier pod of the name still ends there. predecessor is that pod; nil if
// only its ShadowPod is left.
func Waiting(local, predecessor *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	state := "which is about to end"
	if predecessor != nil && predecessor.DeletionTimestamp != nil {
		state = "which ends until " + predecessor.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	status.Phase, status.Reason = corev1.PodPending, PredecessorEnding
	status.Message = fmt.Sprintf("the pod waits for its predecessor of the same name on virtual node %s, %s, so that the two never run at once",
		local.Spec.NodeName, state)
	condition := corev1.PodCondition{
		Type: PredecessorGone, Status: corev1.ConditionFalse, Reason: PredecessorEnding, Message: status.Message,
		LastTransitionTime: now,
	}
	if i := slices.IndexFunc(status.Conditions, isPredecessorGone); i >= 0 {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
		status.Conditions[i] = condition
	} else {
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// Waited returns the status of a pod that does not wait for its predecessor any more.
func Waited(local *corev1.Pod) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	status.Reason, status.Message = "", ""
	status.Conditions = slices.DeleteFunc(status.Conditions, isPredecessorGone)
	return status
}

func isPredecessorGone(condition corev1.PodCondition) bool { return condition.Type == PredecessorGone }
