// SPDX-License-Identifier: Apache-2.0

package podstatus

import corev1 "k8s.io/api/core/v1"

// HostIP returns the address that a pod reports as that of its node, which is ours. Our address changes when our pod is replaced. No client reaches the pod or
// its machine at it, so a pod keeps the first one: a restart of ours changes no running pod, and does not write the status of each.
func HostIP(local *corev1.Pod, ours string) string {
	if local.Status.HostIP != "" && ours != "" {
		return local.Status.HostIP
	}
	return ours
}
