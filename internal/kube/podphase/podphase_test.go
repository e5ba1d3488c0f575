// SPDX-License-Identifier: Apache-2.0

package podphase

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestFinal(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true,
		"succeeded": false, "Other": false,
	} {
		if Final(phase) != want || Final(vkv1alpha1.ShadowPodPhase(phase)) != want {
			t.Errorf("%q: %t, want %t", phase, Final(phase), want)
		}
	}
}
