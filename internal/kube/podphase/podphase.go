// SPDX-License-Identifier: Apache-2.0

// Package podphase reads phases of pods. It must not know whose pod it is, nor what follows from its phase. Its proof is podphase_test.go.
package podphase

import corev1 "k8s.io/api/core/v1"

// Final reports whether a phase, of a pod or of what records one, is terminal: no container of the pod runs, or ever will.
func Final[P ~string](phase P) bool {
	return corev1.PodPhase(phase) == corev1.PodSucceeded || corev1.PodPhase(phase) == corev1.PodFailed
}
