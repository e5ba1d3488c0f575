// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// pinProvider stores the fingerprint of the provider's key: after first contact, and after a rotation.
func (r *reconciler) pinProvider(ctx context.Context, s *scope, grant auth.Grant) error {
	if pinned := clusterkey.Fingerprint(grant.ProviderKey); s.fc.Spec.ClusterKey != pinned {
		before := s.fc.DeepCopy()
		s.fc.Spec.ClusterKey = pinned
		if err := r.patch(ctx, s, before); err != nil {
			return err
		}
		log.FromContext(ctx).Info("key of the provider pinned", "clusterID", s.peer.ClusterID, "fingerprint", pinned, "before", before.Spec.ClusterKey)
	}
	return nil
}

// deleteToken deletes our copy of the provider's token once the provider has answered our request: from now on, our key proves this cluster. Until
// then the provider may remove us as an unused peer, and first contact has to be made again.
func (r *reconciler) deleteToken(ctx context.Context, s *scope) error {
	var token corev1.Secret
	if err := r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.TokenSecretName(s.peer.ClusterID)}, &token); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := r.client.Delete(ctx, &token, client.Preconditions{UID: &token.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the token of %s, which is not needed any more: %w", s.peer.ClusterID, err)
	}
	r.ways.Close(s.peer.ClusterID)
	return nil
}
