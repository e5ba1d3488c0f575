// SPDX-License-Identifier: Apache-2.0

package project

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

const (
	// defaultSeconds is the toleration of a lost node that Kubernetes adds to a pod without one.
	defaultSeconds = 300
	// unlimitedSeconds means no limit. Only the change to it makes Kubernetes cancel a deletion that it has scheduled already; a longer time does not
	// (tainteviction, processPodOnNode).
	unlimitedSeconds = math.MaxInt64
	// extendedSeconds is the toleration of a pod whose provider is unreachable. It is one more than a round number, so that we can distinguish it from what
	// users choose, and keep it out of the ShadowPod.
	extendedSeconds = 3601
)

// ExtendTolerations returns the next tolerations of a pod that runs at a provider: it extends the five minutes that Kubernetes adds for a lost node to an
// hour, in two steps. The first, taken only if the provider is unreachable, sets no limit, which cancels a scheduled deletion. The second, some time later, sets
// an hour. A user chose any other time, so that stays. changed is false if no step is due.
func ExtendTolerations(tolerations []corev1.Toleration, unreachable bool) (longer []corev1.Toleration, changed bool) {
	return withSeconds(tolerations, func(seconds int64) int64 {
		switch {
		case seconds == defaultSeconds && unreachable:
			return unlimitedSeconds
		case seconds == unlimitedSeconds:
			return extendedSeconds
		}
		return seconds
	})
}

// ExtensionPending reports whether ExtendTolerations has taken only the first of its steps.
func ExtensionPending(tolerations []corev1.Toleration) bool {
	_, is := ExtendTolerations(tolerations, false)
	return is
}

// originalTolerations undoes ExtendTolerations: the extension is about the virtual node, not about the provider's nodes.
func originalTolerations(tolerations []corev1.Toleration) []corev1.Toleration {
	made, _ := withSeconds(tolerations, func(seconds int64) int64 {
		if seconds == extendedSeconds || seconds == unlimitedSeconds {
			return defaultSeconds
		}
		return seconds
	})
	return made
}

func withSeconds(tolerations []corev1.Toleration, becomes func(int64) int64) (all []corev1.Toleration, changed bool) {
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
