// SPDX-License-Identifier: Apache-2.0

// Package nodeready reads whether a node is Ready. It must not know which node it is, nor what follows. Its proof is nodeready_test.go.
package nodeready

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Is reports whether a node with these conditions is Ready. A node that does not report is not.
func Is(conditions []corev1.NodeCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
