// SPDX-License-Identifier: Apache-2.0

package project

import (
	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
)

// Secret is what a Secret is in the peer: all of it. A Secret of a service account never crosses: whoever reads its token there would be
// that account here until somebody deletes the Secret. What pods need goes as tokens that end, see TokenSecret.
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
