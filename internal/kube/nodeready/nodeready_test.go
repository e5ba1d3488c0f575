// SPDX-License-Identifier: Apache-2.0

package nodeready

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestIs(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false, corev1.ConditionUnknown: false} {
		conditions := []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: status}}
		if Is(conditions) != want {
			t.Errorf("%s: %t, want %t", status, !want, want)
		}
	}
	if Is([]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}}) || Is(nil) {
		t.Error("a node without the condition is Ready")
	}
}
