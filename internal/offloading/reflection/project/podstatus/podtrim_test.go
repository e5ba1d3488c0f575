// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestAttackM7PodStatus: a provider reports pods with long texts and lists. What is cached of each is bounded, and shows whether the pod has ended.
// FuzzPodStatus compares the status of the local pod with that of an untrimmed one.
func TestAttackM7PodStatus(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	containers := make([]corev1.ContainerStatus, 1000)
	for i := range containers {
		containers[i] = corev1.ContainerStatus{
			Name: fmt.Sprint(i), Image: long, ImageID: long, ContainerID: long, StopSignal: new(corev1.Signal(long)),
			VolumeMounts:         []corev1.VolumeMountStatus{{Name: long}},
			State:                corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: long}},
			LastTerminationState: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: long}},
		}
	}
	conditions := make([]corev1.PodCondition, 1000, 1001)
	for i := range conditions {
		conditions[i] = corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprint(i)), Message: long, Reason: long, Status: corev1.ConditionStatus(long)}
	}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, Message: long, Reason: long, NominatedNodeName: long, HostIP: long, PodIP: long,
		PodIPs: make([]corev1.PodIP, 1000), HostIPs: []corev1.HostIP{{IP: long}}, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: long}},
		Conditions:            append(conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}),
		ContainerStatuses:     containers,
		InitContainerStatuses: containers, EphemeralContainerStatuses: containers,
	}
	podstatus.Trim(&status)
	if size := status.Size(); size > 512<<10 {
		t.Errorf("%d bytes are cached", size)
	}
	if last := status.Conditions[len(status.Conditions)-1]; status.Phase != corev1.PodRunning || last.Type != corev1.DisruptionTarget {
		t.Errorf("phase %s, condition %s", status.Phase, last.Type)
	}
}
