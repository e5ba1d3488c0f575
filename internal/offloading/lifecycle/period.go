// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// LeastPeriod is the shortest grace period of a remote pod, in seconds. With none, the API server would forget the pod while its processes still run: the name
// would be free, and a successor could run beside it. A kubelet waits as long, whatever is requested.
const LeastPeriod int64 = 1

// Announced returns the grace period, in seconds, with which the consumer deletes a ShadowPod, if that is another than the manifest has.
func Announced(shadow metav1.Object) (seconds int64, announced bool) {
	seconds, err := strconv.ParseInt(shadow.GetAnnotations()[labels.DeletionPeriod], 10, 64)
	if err != nil || seconds < 0 {
		return 0, false
	}
	return max(seconds, LeastPeriod), true
}

// Period returns the grace period in seconds with which the pod of a ShadowPod is deleted; 0 means that of the pod, which the provider may have changed.
func Period(shadow *vkv1alpha1.ShadowPod) int64 {
	if seconds, announced := Announced(shadow); announced {
		return seconds
	}
	if own := shadow.Spec.Pod.TerminationGracePeriodSeconds; own != nil && *own < LeastPeriod {
		return LeastPeriod
	}
	return 0
}

// shorter reports whether a pod that is being deleted is to end sooner. Kubernetes never lengthens the period of a deletion.
func shorter(period int64, pod *corev1.Pod) bool {
	return period > 0 && pod.DeletionGracePeriodSeconds != nil && period < *pod.DeletionGracePeriodSeconds
}
