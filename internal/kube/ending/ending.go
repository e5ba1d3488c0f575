// SPDX-License-Identifier: Apache-2.0

// Package ending reads what Kubernetes reports about objects that are being deleted.
package ending

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Is reports whether an object is being deleted: also a namespace whose phase is all that is known.
func Is(object metav1.Object) bool {
	namespace, is := object.(*corev1.Namespace)
	return object.GetDeletionTimestamp() != nil || is && namespace.Status.Phase == corev1.NamespaceTerminating
}

// Obstacles returns why Kubernetes has not deleted a namespace yet, for example because an aggregated API server does not answer, or because of finalizers of
// the namespace itself; "" if nothing is reported.
func Obstacles(namespace *corev1.Namespace) string {
	var reported []string
	for _, c := range namespace.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			reported = append(reported, c.Message)
		}
	}
	if Is(namespace) && len(namespace.Finalizers) > 0 {
		reported = append(reported, "the namespace itself has "+Finalizers(namespace))
	}
	return strings.Join(reported, "; ")
}

// Finalizers names those of an object; "" if it has none.
func Finalizers(object metav1.Object) string {
	switch all := object.GetFinalizers(); len(all) {
	case 0:
		return ""
	case 1:
		return "the finalizer " + all[0]
	default:
		return "the finalizers " + strings.Join(all, ", ")
	}
}

// Since is the end of a sentence that states when the deletion began; "" if that is not known.
func Since(object metav1.Object) string {
	if at := object.GetDeletionTimestamp(); at != nil {
		return " since " + at.UTC().Format(time.RFC3339)
	}
	return ""
}
