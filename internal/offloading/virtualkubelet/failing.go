// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import corev1 "k8s.io/api/core/v1"

// pressure returns the condition PIDPressure. For as long as it is True, Kubernetes taints the node so that no new pods are scheduled there, and
// leaves the running ones alone: of all conditions, only this one does what a node needs whose pods fail in a loop.
func (p *nodeInputs) pressure(condition func(corev1.NodeConditionType, bool, string, string, string) corev1.NodeCondition) corev1.NodeCondition {
	message := "the nodes of the remote cluster monitor their processes"
	if p.failing != "" {
		message = p.failing
	}
	return condition(corev1.NodePIDPressure, p.failing != "", "PodsFailInALoop", "RemoteClusterHasNoPIDPressure", message)
}
