// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

func TestIsReplaced(t *testing.T) {
	pod := func(address, lane string, ending bool, phase corev1.PodPhase) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.GatewayLane: lane}}, Status: corev1.PodStatus{PodIP: address, Phase: phase}}
		if ending {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		return pod
	}
	ours, ending := pod("10.0.0.1", "0", false, corev1.PodRunning), pod("10.0.0.1", "0", true, corev1.PodRunning)
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want bool
	}{
		"alone":                           {[]corev1.Pod{ours}, false},
		"ends, and no other pod exists":   {[]corev1.Pod{ending}, false},
		"ends, and the next one runs":     {[]corev1.Pod{ending, pod("10.0.0.2", "0", false, corev1.PodRunning)}, true},
		"ends, and the next one starts":   {[]corev1.Pod{ending, pod("", "0", false, corev1.PodPending)}, false},
		"ends, and another lane runs":     {[]corev1.Pod{ending, pod("10.0.0.2", "1", false, corev1.PodRunning)}, false},
		"runs, and the one before ends":   {[]corev1.Pod{ours, pod("10.0.0.2", "0", true, corev1.PodRunning)}, false},
		"not known, and another one runs": {[]corev1.Pod{pod("10.0.0.2", "0", false, corev1.PodRunning)}, false},
	} {
		if got := isReplaced(test.pods, netip.MustParseAddr("10.0.0.1"), 0); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
