// SPDX-License-Identifier: Apache-2.0

package project

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

const (
	// hasty is how many seconds Kubernetes tolerates a lost node for each pod that does not say otherwise.
	hasty = 300
	// endless is what Kubernetes takes for no limit, and the only change that makes it drop a deletion that it has scheduled already: a longer
	// time alone does not (tainteviction, processPodOnNode).
	endless = math.MaxInt64
	// patient is how many it is for a pod whose provider is silent. One more than a round number, which somebody might have chosen:
	// it is told apart from what users want, and does not cross.
	patient = 3601
)

// Patient returns the next tolerations of a pod that runs at a provider, for a cluster that shall wait for it: an hour for a lost node where
// Kubernetes filled in five minutes. It takes two steps: if the provider is silent, without end, so that no deletion is scheduled any more; and some
// time after that an hour. Any other time was chosen by somebody, and stays. changed is false if there is nothing to do.
func Patient(tolerations []corev1.Toleration, silent bool) (longer []corev1.Toleration, changed bool) {
	return tolerated(tolerations, func(seconds int64) int64 {
		switch {
		case seconds == hasty && silent:
			return endless
		case seconds == endless:
			return patient
		}
		return seconds
	})
}

// Halfway says whether Patient has taken the first of its steps only.
func Halfway(tolerations []corev1.Toleration) bool {
	_, is := Patient(tolerations, false)
	return is
}

// asMade takes back what Patient did: nodes of the provider are another matter.
func asMade(tolerations []corev1.Toleration) []corev1.Toleration {
	made, _ := tolerated(tolerations, func(seconds int64) int64 {
		if seconds == patient || seconds == endless {
			return hasty
		}
		return seconds
	})
	return made
}

func tolerated(tolerations []corev1.Toleration, becomes func(int64) int64) (all []corev1.Toleration, changed bool) {
	for _, toleration := range tolerations {
		lost := toleration.Key == corev1.TaintNodeNotReady || toleration.Key == corev1.TaintNodeUnreachable
		if seconds := toleration.TolerationSeconds; lost && toleration.Effect == corev1.TaintEffectNoExecute && seconds != nil {
			if next := becomes(*seconds); next != *seconds {
				toleration.TolerationSeconds, changed = &next, true
			}
		}
		all = append(all, toleration)
	}
	return all, changed
}
