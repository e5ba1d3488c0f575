// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"

	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/reach"
)

// planWay decides by which way the peer is reached, with package reach, and keeps the spec in step with that: a peer may offer another address.
func (r *reconciler) planWay(ctx context.Context, s *scope) error {
	if err := r.readInvitation(ctx, s); err != nil {
		return err
	}
	seen := reach.Seen{
		FC: s.fc, Copies: s.facts.Copies, Request: s.facts.Slice, Tunnel: s.facts.Tunnel, Outgoing: s.facts.Outgoing,
		Answers: r.options.Connector.State(s.peer.ClusterID).Ready, Unreachable: r.unreachable(s),
	}
	if s.invitation != nil {
		seen.Invitation = s.invitation.ProxyURL()
	}
	s.way = reach.For(seen)
	if s.way.Spec == (reach.Address{AuthURL: s.fc.Spec.ForeignAuthURL, ProxyURL: s.fc.Spec.ForeignProxyURL}) {
		return nil
	}
	before := s.fc.DeepCopy()
	s.fc.Spec.ForeignAuthURL, s.fc.Spec.ForeignProxyURL = s.way.Spec.AuthURL, s.way.Spec.ProxyURL
	return r.patch(ctx, s, before)
}

// unreachable reports whether the last attempt did not reach the authentication service of the peer, or its API server has been silent for long.
func (r *reconciler) unreachable(s *scope) bool {
	state := r.options.Connector.State(s.peer.ClusterID)
	return s.facts.Outgoing && (r.identityRequests.Get(s.fc.Name).State == conditions.IdentityUnreachable ||
		state.Connected && !state.Ready && s.now.Sub(state.Since) >= identity.MovedAfter)
}

// dialPeer returns a client of the authentication service of the peer.
func (r *reconciler) dialPeer(s *scope) (Registrar, error) {
	if s.way.Kind != reach.Invited {
		return r.options.Dial(s.fc)
	}
	fc := s.fc.DeepCopy()
	fc.Spec.ForeignProxyURL = s.way.Proxy
	return r.options.DialThrough(fc, r.ways.Dial(s.peer.ClusterID, *s.invitation))
}

// byInvitation reports whether an identity still leads through the invitation.
func (s *scope) byInvitation(held *identity.Held) bool {
	return s.invitation != nil && held.Identity.ProxyURL == s.invitation.ProxyURL()
}

// moved reports whether the peer is now reached through another proxy than that of our identity, or directly: then the address of its API server is another
// one as well.
func (s *scope) moved(held *identity.Held) bool {
	return s.facts.Outgoing && s.facts.Problem == nil && held.Identity.ProxyURL != s.way.Proxy
}
