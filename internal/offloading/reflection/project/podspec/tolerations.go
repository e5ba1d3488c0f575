// SPDX-License-Identifier: Apache-2.0

package podspec

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
)

// extendedTo returns the toleration of a pod whose provider is unreachable: whole minutes, and one second more. By that second we distinguish it from what
// users choose, and keep it out of the ShadowPod.
func extendedTo(seconds int64) int64 { return (seconds+58)/60*60 + 1 }

func isExtended(seconds int64) bool {
	return seconds == unlimitedSeconds || seconds > defaultSeconds && seconds%60 == 1
}

// ExtendTolerations returns the next tolerations of a pod that runs at a provider: it extends the five minutes that Kubernetes adds for a lost node to the
// seconds that its namespace wants (0: it wants none), in two steps. The first, taken only if the provider is unreachable, sets no limit, which cancels a
// scheduled deletion. The second, some time later, sets the limit. A user chose any other time, so that stays. changed is false if no step is due.
func ExtendTolerations(tolerations []corev1.Toleration, wanted int64, unreachable bool) (longer []corev1.Toleration, changed bool) {
	return withSeconds(tolerations, func(seconds int64) int64 {
		switch {
		case seconds == defaultSeconds && unreachable && wanted > defaultSeconds:
			return unlimitedSeconds
		case seconds == unlimitedSeconds && wanted > defaultSeconds:
			return extendedTo(wanted)
		case seconds == unlimitedSeconds: // the namespace has changed its mind after the first step
			return defaultSeconds
		}
		return seconds
	})
}

// ExtensionPending reports whether ExtendTolerations has taken only the first of its steps.
func ExtensionPending(tolerations []corev1.Toleration) bool {
	_, is := ExtendTolerations(tolerations, 0, false)
	return is
}

// originalTolerations undoes ExtendTolerations: the extension is about the virtual node, not about the provider's nodes.
func originalTolerations(tolerations []corev1.Toleration) []corev1.Toleration {
	made, _ := withSeconds(tolerations, func(seconds int64) int64 {
		if isExtended(seconds) {
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
