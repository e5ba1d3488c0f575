// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Final recognises errors that repeat until the object is changed.
func Final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

// Visible recognises errors that the user of the object can do something about.
func Visible(err error) bool {
	return Final(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Temporary recognises errors of an API server that are neither about the object nor about what the peer may do: it answers, and cannot do it now.
func Temporary(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !Visible(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) &&
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// MustReplace recognises a refusal of a change that deleting and creating the object again would avoid.
func MustReplace(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldValueDuplicate || strings.Contains(cause.Message, "immutable") ||
			strings.Contains(cause.Message, "may not change once set") {
			return true
		}
	}
	return false
}
