// SPDX-License-Identifier: Apache-2.0

// Package report reads what a pod of a move has reported.
//
// It must not know the move. Its proof are the tests of package plan.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/storage/v1alpha1"
)

// Result is what a pod of a pass leaves as its termination message.
type Result struct {
	All      v1alpha1.MoveAmount `json:"all"`
	Sent     v1alpha1.MoveAmount `json:"sent"`
	Seconds  int64               `json:"seconds"`
	Verified bool                `json:"verified"`
}

// ResultOf reads the result of a pod that has ended.
func ResultOf(pod *corev1.Pod) (r Result, err error) {
	err = json.Unmarshal([]byte(Ended(pod)), &r)
	return r, err
}

// Ended is the termination message of a pod in one line, or why there is none. A provider writes it, so it is cut.
func Ended(pod *corev1.Pod) string {
	const most = 500
	text := cmp.Or(pod.Status.Message, pod.Status.Reason, "no reason given")
	for i := range pod.Status.ContainerStatuses {
		if state := pod.Status.ContainerStatuses[i].State.Terminated; state != nil {
			text = cmp.Or(state.Message, fmt.Sprintf("%s, exit code %d", state.Reason, state.ExitCode))
		}
	}
	lines := strings.FieldsFunc(text[:min(len(text), most)], func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.ToValidUTF8(strings.Join(lines, "; "), "")
}

// Waiting is why a pod does not run.
func Waiting(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		if state := pod.Status.ContainerStatuses[i].State.Waiting; state != nil && state.Reason != "" {
			return strings.TrimSuffix(state.Reason+": "+state.Message, ": ")
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return fmt.Sprintf("pod %s is %s", pod.Name, cmp.Or(string(pod.Status.Phase), "new"))
}

// Ready reports whether a pod is Ready and stays.
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Unschedulable reports whether the scheduler has found no node for a pod.
func Unschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}
