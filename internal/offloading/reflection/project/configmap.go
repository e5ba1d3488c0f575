// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
)

// rootCA is the ConfigMap in every namespace with the certificate of the API server of its own cluster.
const rootCA = "kube-root-ca.crt"

// ConfigMap returns the remote ConfigMap: a full copy. Nil: it is skipped.
func ConfigMap(m NamespaceMapping, local *corev1.ConfigMap) *coreapply.ConfigMapApplyConfiguration {
	if m.Skips(local) {
		return nil
	}
	remote := coreapply.ConfigMap(ConfigMapName(m, local.Name), m.Remote).
		WithLabels(m.labelsOf(local)).WithAnnotations(m.annotationsOf(local)).
		WithData(local.Data).WithBinaryData(local.BinaryData)
	remote.Immutable = local.Immutable
	return remote
}

// ConfigMapName returns the name of a local ConfigMap in the peer. The certificate of our API server gets a name of its own, because the peer has one of
// its API server under the same name.
func ConfigMapName(m NamespaceMapping, local string) string {
	if local == rootCA {
		return rootCA + "." + strings.TrimRight(m.LocalID[:min(5, len(m.LocalID))], "-.")
	}
	return local
}

// LocalConfigMapName is the inverse of ConfigMapName.
func LocalConfigMapName(m NamespaceMapping, remote string) string {
	if remote == ConfigMapName(m, rootCA) {
		return rootCA
	}
	return remote
}
