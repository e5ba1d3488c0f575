// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAttackM7Condition: while the pods of a node fail in a loop, the node has the condition for which Kubernetes sets the taint NoSchedule. It stays
// Ready, so that its running pods stay.
func TestAttackM7Condition(t *testing.T) {
	inputs := testInputs()
	inputs.granted, inputs.reach = granted("12", "30G"), reachable
	for failing, want := range map[string]corev1.ConditionStatus{"": corev1.ConditionFalse, "50 pods failed": corev1.ConditionTrue} {
		inputs.failing = failing
		status := inputs.status()
		pressure, ready := find(status.Conditions, corev1.NodePIDPressure), find(status.Conditions, corev1.NodeReady)
		if pressure.Status != want || failing != "" && (pressure.Reason != "PodsFailInALoop" || pressure.Message != failing) {
			t.Errorf("%q: %+v", failing, pressure)
		}
		if ready.Status != corev1.ConditionTrue {
			t.Errorf("%q: %+v", failing, ready)
		}
	}
}
