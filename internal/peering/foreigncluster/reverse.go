// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sharingapply "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
)

// A consumer lets its provider use it in turn, unless its settings refuse that: its request carries the URL of its authentication service and that of its
// proxy inside the tunnel, and that service accepts the key by which the consumer knows the provider in place of a token. So `liqoctl peer NAME`, run for the
// provider, is all that is needed, even if the provider reaches nothing of the consumer but the tunnel.

// offers reports whether the remote cluster, which this one uses, may use this one in turn. A cluster of an in-band peering may in any case: an
// administrator of this one has pinned its key.
func (s *scope) offers() bool {
	if s.fc.DeletionTimestamp != nil || isInvitation(s.fc) || !s.facts.Outgoing && !s.fc.InBand() ||
		s.facts.Problem != nil || s.fc.Spec.ClusterKey == "" || s.facts.Incoming == nil {
		return false
	}
	state := s.facts.Incoming.State
	return state == discoveryv1alpha1.IncomingAccepted || state == discoveryv1alpha1.IncomingWaiting
}

// sliceSpec is our request, with the URL of our authentication service and that of our proxy if the provider may use this cluster in turn.
func (r *reconciler) sliceSpec(ctx context.Context, s *scope, node string) (*sharingapply.ResourceSliceSpecApplyConfiguration, error) {
	spec := sharingapply.ResourceSliceSpec().WithConsumerClusterID(r.options.Local.ClusterID).WithProviderClusterID(s.peer.ClusterID).WithNodeName(node)
	if !s.offers() {
		return spec, nil
	}
	if s.facts.ProxyURL != "" {
		spec.WithProxyURL(s.facts.ProxyURL)
	}
	if s.fc.InBand() {
		return spec, nil
	}
	url, err := r.address.URL(ctx, s.now)
	if url != "" {
		spec.WithAuthURL(url)
	}
	return spec, err
}

// ensureOffer has the authentication service accept the key of the provider while it may use this cluster.
func (r *reconciler) ensureOffer(ctx context.Context, s *scope) error {
	var have corev1.ConfigMap
	err := r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.ProviderName(s.peer.ClusterID)}, &have)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("look for the key that %s has as a provider: %w", s.peer.ClusterID, err)
	case !s.offers() && err == nil:
		if err := r.client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the key that %s has as a provider: %w", s.peer.ClusterID, err)
		}
		return nil
	case !s.offers():
		return nil
	}
	if !s.fc.InBand() {
		s.requeueWithin(published.Interval)
	}
	live := client.Object(&have)
	if err != nil {
		live = nil
	}
	return r.own.ApplyTo(ctx, auth.ProviderKey(r.options.Namespace, s.peer.ClusterID, s.fc.Spec.ClusterKey), live)
}

// opensProxy reports whether the peer reaches our proxy: an in-band peer, and a provider that may use this cluster in turn and cannot reach it at published
// addresses. Without need it is closed, also because a gateway with mappings tracks connections.
func (r *reconciler) opensProxy(ctx context.Context, s *scope) (bool, error) {
	if s.fc.InBand() || !s.offers() {
		return s.fc.InBand(), nil
	}
	if s.facts.Slice != nil && s.facts.Slice.Status.ProxyWanted {
		return true, nil
	}
	url, err := r.address.URL(ctx, s.now)
	return url == "", err
}
