// SPDX-License-Identifier: Apache-2.0

package project

import "strings"

// rootCA is the ConfigMap in every namespace with the certificate of the API server of its own cluster.
const rootCA = "kube-root-ca.crt"

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
