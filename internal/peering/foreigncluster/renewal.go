// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/reach"
)

// An authentication service that everyone can reach can be held by everyone, the way there be closed, or someone else answer there. A consumer with a
// tunnel then renews its identity through that, and the provider's proxy (docs/adr/0037-a-second-way-to-renew.md).

// renewsInside reports whether the peer, a consumer, is to reach our authentication service through the tunnel: to renew its identity only.
func (s *scope) renewsInside() bool {
	return !s.fc.InBand() && !isInvitation(s.fc) && s.facts.Admitted && s.facts.Tunnel != nil && len(s.facts.Copies) > 0 &&
		s.facts.Incoming != nil && s.facts.Incoming.State == discoveryv1alpha1.IncomingAccepted
}

// renew renews the identity, by the second way if the direct one gives none, and records in held why.
func (r *reconciler) renew(ctx context.Context, s *scope, held *identity.Held, direct Registrar, by func(Registrar) identity.Attempt) (auth.Grant, error) {
	held.Inside = ""
	if s.way.NoSecond != "" {
		log.FromContext(ctx).V(1).Info("renewing the identity, with one way to the provider", "clusterID", s.peer.ClusterID, "reason", s.way.NoSecond)
		return by(direct)(ctx)
	}
	fc := s.fc.DeepCopy()
	// The certificate has no name that is used inside. The tunnel encrypts it all, and the pinned key proves the provider.
	fc.Spec.ForeignAuthURL, fc.Spec.ForeignProxyURL, fc.Spec.InsecureSkipTLSVerify = s.way.Second.AuthURL, s.way.Second.ProxyURL, new(true)
	inside, err := r.options.Dial(fc)
	if err != nil {
		return by(direct)(ctx)
	}
	grant, failed, err := identity.Either(ctx, by(direct), by(inside), identity.Silence)
	if err == nil && failed != nil {
		held.Inside = identity.WhyInside(s.fc.Spec.ForeignAuthURL, failed)
		log.FromContext(ctx).Info("identity renewed through the tunnel", "clusterID", s.peer.ClusterID, "reason", held.Inside, "answer", failed.Error())
	}
	return grant, err
}

// storeIdentity stores a new token and connects with it.
func (r *reconciler) storeIdentity(ctx context.Context, s *scope, held *identity.Held, grant auth.Grant) error {
	now := r.options.Now() // the request took time
	var before *remote.Identity
	if held.Complete {
		before = new(held.Identity)
	}
	wasInside := s.facts.RenewedInside
	held.Identity = remote.Identity{
		Namespace: grant.Namespace, APIServerURL: grant.APIServerURL, APIServerCA: grant.APIServerCA,
		ProxyURL: s.way.Proxy, Token: grant.Token, RenewAt: now.Add(grant.Lifetime / 2), ExpiresAt: now.Add(grant.Lifetime), Invited: s.way.Kind == reach.Invited,
	}
	held.Complete = true
	if err := held.Write(ctx, r.own, s.namespace, s.peer.ClusterID); err != nil {
		return err
	}
	identity.GrantEvent(before, held.Identity, now).Send(r.events, s.fc, "ReadGrant")
	identity.InsideEvent(wasInside, held.Inside).Send(r.events, s.fc, "RenewIdentity")
	s.facts.RenewedInside = held.Inside
	log.FromContext(ctx).Info("identity accepted", "clusterID", s.peer.ClusterID, "namespace", grant.Namespace, "lifetime", grant.Lifetime.String())
	s.facts.Identity = conditions.IdentityAccepted
	s.requeueWithin(held.Identity.RenewAt.Sub(s.now))
	return r.connect(ctx, s, held)
}
