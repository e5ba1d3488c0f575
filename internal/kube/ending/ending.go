// SPDX-License-Identifier: Apache-2.0

// Package ending reads what Kubernetes reports about objects that are being deleted.
package ending

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Obstacles returns why Kubernetes has not deleted a namespace yet, for example because an aggregated API server does not answer; "" if nothing is reported.
func Obstacles(namespace *corev1.Namespace) string {
	var reported []string
	for _, c := range namespace.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			reported = append(reported, c.Message)
		}
	}
	return strings.Join(reported, "; ")
}
