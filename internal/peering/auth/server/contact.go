// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/hmac"
	"errors"
	"net/http"
	"time"

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/peering/auth"
)

func (s *Server) register(ctx context.Context, request auth.RegistrationRequest) (string, any, error) {
	peer := request.Cluster.ClusterID
	which, fresh := s.challenges.Check(request.Question.Challenge, peer, s.options.Now())
	if !fresh {
		return peer, nil, auth.ChallengeNeeded
	}
	call, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	transcript := request.Signed()
	// The token first: clients without one cause no more work than this.
	token, err := s.checkToken(call, request, transcript)
	if errors.Is(err, auth.ErrEmptyDenied) && (s.isRegistered(call, request) || s.isProvider(call, request)) {
		err = nil // a registered cluster that makes first contact again has deleted its token
	}
	if err != nil {
		return peer, nil, err
	}
	if refusal := request.Proven(transcript); refusal != nil {
		return peer, nil, refusal
	}
	signer, err := s.signer(call, request.Question)
	if err != nil {
		return peer, nil, err
	}
	if !s.challenges.Spend(which, "token "+request.TokenID, s.options.Now()) {
		return peer, nil, auth.ChallengeNeeded
	}
	listener.Keep(ctx, "token "+request.TokenID) // the tenant may take a while
	to := auth.AnswerTo{Provider: s.options.Cluster.ClusterID, Consumer: peer, PublicKey: request.PublicKey, Question: request.Question}
	if request.DryRun {
		answer, err := signer.answer(auth.Grant{Ways: s.ways(call, request)}, to)
		return peer, answer, err
	}
	select {
	case s.tenantSlots <- struct{}{}:
		defer func() { <-s.tenantSlots }()
	default:
		refusal := auth.Refuse(http.StatusTooManyRequests, auth.ReasonTooMany, "too many clusters make first contact at this time; try again later")
		refusal.RetryAfter = time.Second
		return peer, nil, refusal
	}
	if token != nil && token.Once {
		first, err := s.options.Peers.Spend(call, request.TokenID, peer)
		if err != nil {
			return peer, nil, err
		}
		if !first {
			return peer, nil, auth.Refuse(http.StatusUnauthorized, auth.ReasonDenied,
				"the token was used by another cluster; `liqoctl generate peer-command`, run for this cluster, prints another one")
		}
	}
	pinned, created, err := s.options.Peers.Pin(call, auth.Pin{
		Cluster: request.Cluster, Key: request.PublicKey, ClusterKey: request.ClusterKey, AuthURL: request.AuthURL, TokenID: request.TokenID,
		InBand: request.Question.InBand,
	})
	if err != nil {
		return peer, nil, err
	}
	if !created {
		if pinned, err = s.repeated(ctx, request, pinned); err != nil {
			return peer, nil, err
		}
	}
	pinned.InBand = request.Question.InBand
	grant, err := s.options.Peers.GrantNew(ctx, pinned)
	if err != nil {
		return peer, nil, err
	}
	answer, err := signer.answer(grant, to)
	return peer, answer, err
}

// repeated returns the pin of a registered cluster that makes first contact again: with the same name and the same keys, or with proof that it has
// replaced them.
func (s *Server) repeated(ctx context.Context, request auth.RegistrationRequest, pinned auth.Pin) (auth.Pin, error) {
	local, peer := s.options.Cluster, request.Cluster
	by := request.Replacement(local.ClusterID)
	if !by.Done(pinned) && !by.ProvenTo(local.ClusterID, pinned) {
		return auth.Pin{}, auth.Refuse(http.StatusForbidden, auth.ReasonConflict,
			"cluster %s is registered in %s, as %s, with another key; if it was reinstalled, an administrator of %s "+
				"must end the old peering there (`liqoctl unpeer out-of-band %s`), then it can peer again",
			peer.ClusterID, local.ClusterName, pinned.Cluster.ClusterName, local.ClusterName, pinned.Cluster.ClusterName)
	}
	if pinned.Cluster.ClusterName != peer.ClusterName {
		return auth.Pin{}, auth.Invalid("cluster %s is registered in %s under the name %s, and the request has the name %s; "+
			"restore the old name, or end the old peering on both sides and peer again",
			peer.ClusterID, local.ClusterName, pinned.Cluster.ClusterName, peer.ClusterName)
	}
	if by.Done(pinned) {
		return pinned, nil
	}
	return s.options.Peers.Replace(ctx, pinned, by)
}

// checkToken returns the token that proves a registration; nil if this cluster requires none.
func (s *Server) checkToken(ctx context.Context, r auth.RegistrationRequest, transcript []byte) (*auth.AcceptedToken, error) {
	if r.TokenID == "" {
		if !s.options.EnableAuthentication {
			return nil, nil
		}
		return nil, auth.Refuse(http.StatusUnauthorized, auth.ReasonEmptyDenied,
			"this cluster requires a token, and the request has none; `liqoctl generate peer-command`, run for this cluster, prints it")
	}
	all, err := s.options.Tokens.Tokens(ctx)
	if err != nil {
		return nil, auth.Unavailable(err)
	}
	for i := range all {
		one := &all[i]
		if auth.TokenID(one.Secret) != r.TokenID || !hmac.Equal(auth.TokenProof(one.Secret, transcript), r.TokenProof) {
			continue
		}
		if !one.Expires.IsZero() && !s.options.Now().Before(one.Expires) {
			return nil, auth.Refuse(
				http.StatusUnauthorized, auth.ReasonDenied,
				"the token expired; `liqoctl generate peer-command`, run for this cluster, prints another one",
			)
		}
		if one.For != "" && one.For != r.Cluster.ClusterID && one.For != r.Cluster.ClusterName {
			return nil, auth.Refuse(http.StatusUnauthorized, auth.ReasonDenied,
				"the token is for another cluster; `liqoctl generate peer-command --for %s`, run for this cluster, prints one for the requesting cluster",
				r.Cluster.ClusterName)
		}
		return one, nil
	}
	return nil, auth.Refuse(http.StatusUnauthorized, auth.ReasonDenied,
		"the token is not one of this cluster; `liqoctl generate peer-command`, run for this cluster, prints it")
}

// isRegistered reports whether the keys of a request are those of its registered cluster, or proven to replace them. Its signatures are still to be checked.
func (s *Server) isRegistered(ctx context.Context, request auth.RegistrationRequest) bool {
	pin, err := s.options.Peers.Pinned(ctx, request.Cluster.ClusterID)
	by := request.Replacement(s.options.Cluster.ClusterID)
	return err == nil && (by.Done(pin) || by.ProvenTo(s.options.Cluster.ClusterID, pin))
}

// isProvider reports whether the request has the key of a cluster that this one uses, and lets use it in turn. Its signatures are still to be checked.
func (s *Server) isProvider(ctx context.Context, request auth.RegistrationRequest) bool {
	fingerprint, err := s.options.Peers.Provider(ctx, request.Cluster.ClusterID)
	return err == nil && fingerprint != "" && fingerprint == clusterkey.Fingerprint(request.ClusterKey)
}

// ways answers a dry run that asks for the ways to the gateways. They are a help, so a failure to find them fails nothing.
func (s *Server) ways(ctx context.Context, r auth.RegistrationRequest) []byte {
	if !r.Ways || s.options.Ways == nil {
		return nil
	}
	found, err := s.options.Ways(ctx)
	if err != nil {
		s.options.Log.Error(err, "the ways to the gateways are unknown")
	}
	return found
}
