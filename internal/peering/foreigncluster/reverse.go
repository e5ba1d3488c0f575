// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	sharingapply "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
)

// A consumer lets its provider use it in turn, unless its settings refuse that: its request carries the URL of its authentication service and that of its
// proxy inside the tunnel, and that service accepts the key by which the consumer knows the provider in place of a token. So `liqoctl peer NAME`, run for the
// provider, is all that is needed, even if the provider reaches nothing of the consumer but the tunnel.

// addressInterval is how often the URL of our authentication service is read: it changes rarely, and no event reports it.
const addressInterval = 5 * time.Minute

// offers reports whether the remote cluster, which this one uses, may use this one in turn. A cluster of an in-band peering may in any case: an
// administrator of this one has pinned its key.
func (s *scope) offers() bool {
	if s.fc.DeletionTimestamp != nil || isInvitation(s.fc) || !s.facts.Outgoing && !s.fc.InBand() || s.facts.Problem != nil || s.fc.Spec.ClusterKey == "" || s.facts.Incoming == nil {
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
	url, err := r.authURL(ctx, s.now)
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
		s.requeueWithin(addressInterval)
	}
	live := client.Object(&have)
	if err != nil {
		live = nil
	}
	return r.own.ApplyTo(ctx, auth.ProviderKey(r.options.Namespace, s.peer.ClusterID, s.fc.Spec.ClusterKey), live)
}

// followAddress copies the URL that a consumer offers to the ForeignCluster that its registration created. An administrator who peers with that cluster
// out-of-band sets another one, and makes the object theirs.
func (r *reconciler) followAddress(ctx context.Context, s *scope) error {
	if s.fc.DeletionTimestamp != nil || s.fc.Labels[labels.DiscoveryType] != labels.DiscoveryIncoming || len(s.facts.Copies) == 0 {
		return nil
	}
	now := way{s.fc.Spec.ForeignAuthURL, s.fc.Spec.ForeignProxyURL}
	next := now.choose(offerOf(s.facts.Copies), s.facts.Tunnel, r.unreachable(s))
	if next == now || next.authURL == "" && s.facts.Outgoing {
		return nil // while we use that cluster, its last URL may still work
	}
	before := s.fc.DeepCopy()
	s.fc.Spec.ForeignAuthURL, s.fc.Spec.ForeignProxyURL = next.authURL, next.proxyURL
	return r.patch(ctx, s, before)
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
	url, err := r.authURL(ctx, s.now)
	return url == "", err
}

// unreachable reports whether the last attempt did not reach the authentication service of the peer, or its API server has been silent for long.
func (r *reconciler) unreachable(s *scope) bool {
	state := r.options.Connector.State(s.peer.ClusterID)
	return s.facts.Outgoing && (r.identityRequests.Get(s.fc.Name).State == conditions.IdentityUnreachable ||
		state.Connected && !state.Ready && s.now.Sub(state.Since) >= identity.MovedAfter)
}

// way is how another cluster is reached: directly, perhaps through a proxy that an administrator has chosen, or through the tunnel and its own proxy.
type way struct{ authURL, proxyURL string }

// offerOf is what a consumer offers; empty fields if it offers nothing, or nothing that is valid.
func offerOf(requests []sharingv1alpha1.ResourceSlice) (offer way) {
	for i := range requests {
		if spec := &requests[i].Spec; offer.authURL == "" && spec.AuthURL != "" && spec.AuthURL != discoveryv1alpha1.AuthURLInside && auth.ValidURL(spec.AuthURL) {
			offer.authURL = spec.AuthURL
		}
		if offer.proxyURL == "" {
			offer.proxyURL = requests[i].Spec.ProxyURL
		}
	}
	return offer
}

// choose is the way to a cluster that offers an address and a proxy: directly as long as that works, else through the tunnel, which has no way back. A proxy
// that is not in the network of that cluster does not count, and what works stays: each change costs this cluster requests, and the other one may offer
// another proxy at any moment.
func (w way) choose(offer way, tunnel *netv1alpha1.TunnelEndpoint, unreachable bool) way {
	inside := w.authURL == discoveryv1alpha1.AuthURLInside
	direct := way{authURL: offer.authURL}
	if !inside {
		direct.proxyURL = w.proxyURL
	}
	switch {
	case inside && offer.proxyURL != "" && (tunnel == nil || !unreachable && leadsInside(w.proxyURL, tunnel)):
		return w // without a tunnel, it cannot be checked
	case tunnel == nil || !leadsInside(offer.proxyURL, tunnel):
		return direct
	case inside, offer.authURL == "", offer.authURL == w.authURL && unreachable:
		return way{discoveryv1alpha1.AuthURLInside, offer.proxyURL}
	}
	return direct
}

// ownAddress remembers the URL of our authentication service.
type ownAddress struct {
	mu  sync.Mutex
	url string
	at  time.Time
}

// authURL returns the URL of our authentication service; empty if other clusters cannot reach it.
func (r *reconciler) authURL(ctx context.Context, now time.Time) (string, error) {
	r.address.mu.Lock()
	defer r.address.mu.Unlock()
	if age := now.Sub(r.address.at); age >= 0 && age < addressInterval/2 {
		return r.address.url, nil
	}
	var service corev1.Service
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: published.Service}, &service)
	url := ""
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return "", fmt.Errorf("read the Service of authentication: %w", err)
	default:
		if url, err = published.URL(ctx, r.client, r.live, &service); err != nil {
			log.FromContext(ctx).V(1).Info("providers cannot use this cluster in turn, because they cannot reach its authentication service", "reason", err.Error())
			url = ""
		}
	}
	r.address.url, r.address.at = url, now
	return url, nil
}
