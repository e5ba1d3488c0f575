// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
)

// rootCA is the ConfigMap that every namespace has, with the certificate of its own cluster's API server.
const rootCA = "kube-root-ca.crt"

// ConfigMap is what a ConfigMap is in the peer: all of it.
func ConfigMap(m NamespaceMapping, local *corev1.ConfigMap) *coreapply.ConfigMapApplyConfiguration {
	if Skipped(local) {
		return nil
	}
	remote := coreapply.ConfigMap(ConfigMapName(m, local.Name), m.Remote).
		WithLabels(m.labelsOf(local)).WithAnnotations(m.annotationsOf(local)).
		WithData(local.Data).WithBinaryData(local.BinaryData)
	remote.Immutable = local.Immutable
	return remote
}

// ConfigMapName is the name of a local ConfigMap in the peer. The certificate of our API server stands beside that of the peer's own.
func ConfigMapName(m NamespaceMapping, local string) string {
	if local == rootCA {
		return rootCA + "." + strings.TrimRight(m.LocalID[:min(5, len(m.LocalID))], "-.")
	}
	return local
}

// LocalConfigMapName is the local name of a ConfigMap that the peer holds for us.
func LocalConfigMapName(m NamespaceMapping, remote string) string {
	if remote == ConfigMapName(m, rootCA) {
		return rootCA
	}
	return remote
}
