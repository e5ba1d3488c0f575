// SPDX-License-Identifier: Apache-2.0

package project

import (
	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
)

// Secret returns the remote Secret: a full copy. Nil: it is skipped, or holds the token of a service account. Such a Secret is never reflected, because its
// token does not expire: anyone who reads it in the peer could act as the account here until the Secret is deleted. Pods get tokens that expire, see TokenSecret.
func Secret(m NamespaceMapping, local *corev1.Secret) *coreapply.SecretApplyConfiguration {
	if Skipped(local) || local.Type == corev1.SecretTypeServiceAccountToken {
		return nil
	}
	remote := coreapply.Secret(local.Name, m.Remote).
		WithLabels(m.labelsOf(local)).WithAnnotations(m.annotationsOf(local)).
		WithData(local.Data)
	remote.Type, remote.Immutable = some(local.Type), local.Immutable
	return remote
}
