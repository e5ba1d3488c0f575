// SPDX-License-Identifier: Apache-2.0

package auth

import (
	corev1 "k8s.io/api/core/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
)

// A provider of this cluster may become its consumer without a token: it has proven its key to us when we registered there, and proves it again. The
// controller manager writes for which providers that is so, because this process reads nothing but ConfigMaps and tokens.

// PinProvider is the value of the label [labels.PinnedKey] of the key of a provider.
const PinProvider = "provider"

const providerPrefix = "provider-key-"

// ProviderName is the name of the ConfigMap with the key of a provider.
func ProviderName(clusterID string) string { return providerPrefix + clusterID }

// ProviderKey is the ConfigMap which lets a provider register without a token. fingerprint is that of its cluster key.
func ProviderKey(namespace, clusterID, fingerprint string) *corev1apply.ConfigMapApplyConfiguration {
	own := objectLabels(labels.PinnedKey, "provider-key", clusterID)
	own[labels.PinnedKey], own[labels.AppManagedBy] = PinProvider, labels.OwnerForeignCluster
	return corev1apply.ConfigMap(ProviderName(clusterID), namespace).WithLabels(own).
		WithData(map[string]string{PinClusterID: clusterID, PinClusterKey: fingerprint})
}

// ProviderFingerprint reads what ProviderKey wrote.
func ProviderFingerprint(object *corev1.ConfigMap) string { return object.Data[PinClusterKey] }
