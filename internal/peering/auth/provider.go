// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
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

// Provider returns the fingerprint of the key of a provider that may register without a token; empty if the cluster is none.
func (r Registry) Provider(ctx context.Context, clusterID string) (string, error) {
	object, err := r.Client.ConfigMaps(r.Namespace).Get(ctx, ProviderName(clusterID), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the key of provider %s: %w", clusterID, err)
	}
	return ProviderFingerprint(object), nil
}

// isProvider reports whether the request has the key of a cluster that this one uses, and lets use it in turn. Its signatures are still to be checked.
func (s *Server) isProvider(ctx context.Context, request registrationRequest) bool {
	fingerprint, err := s.options.Peers.Provider(ctx, request.Cluster.ClusterID)
	return err == nil && fingerprint != "" && fingerprint == clusterkey.Fingerprint(request.ClusterKey)
}
