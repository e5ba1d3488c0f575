// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

// isReplaced tells whether this pod, at address own, is to end and another one of its lane runs. A node whose kubelet is dead goes on to run what Kubernetes
// has given up. Two ends with one key would take the peers from each other, again and again.
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
