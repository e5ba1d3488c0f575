// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

// isReplaced reports whether this pod, at address own, is being deleted while another pod of its lane runs. A node whose kubelet is dead keeps
// running pods that Kubernetes has given up. Two gateways with one key would keep taking the peers from each other.
func isReplaced(pods []corev1.Pod, own netip.Addr, lane int) bool {
	ending, other := false, false
	for i := range pods {
		pod := &pods[i]
		switch {
		case pod.Labels[labels.GatewayLane] != strconv.Itoa(lane):
		case pod.Status.PodIP == own.String():
			ending = pod.DeletionTimestamp != nil
		case pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "":
			other = true
		}
	}
	return ending && other
}
