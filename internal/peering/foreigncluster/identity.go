// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/reach"
)

// tokenKey is the key of the Secret with the token of a provider.
const tokenKey = "token"

// discoverIdentity sets spec.clusterIdentity to that of the cluster that answers at the authentication URL.
func (r *reconciler) discoverIdentity(ctx context.Context, s *scope) error {
	registrar, err := r.options.Dial(s.fc)
	if err != nil {
		s.facts.Problem = conditions.NewProblem(discoveryv1alpha1.ReasonIdentityMismatch, fmt.Sprintf("foreignAuthUrl: %v", err))
		return errWaiting
	}
	ctx, cancel := context.WithTimeout(ctx, idsTimeout)
	defer cancel()
	ids, err := registrar.IDs(ctx)
	if err != nil {
		s.facts.Identity, s.facts.IdentityMessage = conditions.IdentityUnreachable,
			fmt.Sprintf("asked %s which cluster it belongs to: %v", s.fc.Spec.ForeignAuthURL, err)
		s.requeueWithin(5 * time.Second)
		return errWaiting
	}
	s.version = ids.Version
	if known := s.fc.Spec.ClusterIdentity; known != nil && known.ClusterID != "" && known.ClusterID != ids.ClusterID {
		s.facts.Problem = conditions.NewProblem(discoveryv1alpha1.ReasonIdentityMismatch, fmt.Sprintf(
			"spec.clusterIdentity has cluster ID %s, but cluster %s answers at %s; correct spec.clusterIdentity or spec.foreignAuthUrl",
			known.ClusterID, ids.ClusterID, s.fc.Spec.ForeignAuthURL))
		s.requeueWithin(time.Minute)
		return errWaiting
	}
	before := s.fc.DeepCopy()
	s.fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: ids.ClusterID, ClusterName: ids.ClusterName}
	if err := r.patch(ctx, s, before); err != nil {
		return err
	}
	return errWaiting // the event of the changed object triggers the next reconciliation
}

// ensureIdentity obtains and renews a token of the peer while one is needed, and deletes it afterwards.
func (r *reconciler) ensureIdentity(ctx context.Context, s *scope) error {
	held, err := identity.Read(ctx, r.live, s.namespace, s.peer.ClusterID, s.fc.DeletionTimestamp != nil)
	if err != nil {
		return err
	}
	s.facts.RenewedInside = held.Inside
	if !s.facts.Outgoing && s.facts.Slice == nil {
		r.identityRequests.Forget(s.fc.Name)
		if held.Secret == nil || s.fc.DeletionTimestamp != nil {
			return nil // with the ForeignCluster, the whole namespace is deleted
		}
		if err := r.client.Delete(ctx, held.Secret, client.Preconditions{UID: &held.Secret.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete identity %s/%s: %w", held.Secret.Namespace, held.Secret.Name, err)
		}
		return nil
	}
	state := r.options.Connector.State(s.peer.ClusterID)
	if held.Complete {
		// Connect even with an old token: it may still be valid, and the probes of the connection find that out.
		if err := r.connect(ctx, s, held); err != nil {
			return err
		}
		if wait := identity.RenewIn(held.Identity.RenewAt, state, s.now); wait > 0 && !held.Outdated(s.fc) && !s.moved(held) {
			s.facts.Identity = conditions.IdentityAccepted
			s.requeueWithin(wait)
			if state.Ready {
				r.identityRequests.Forget(s.fc.Name)
				if s.facts.Slice != nil && s.facts.Slice.Status.Phase != "" && !s.byInvitation(held) {
					return r.deleteToken(ctx, s)
				}
			}
			return nil
		}
	}
	if !s.facts.Outgoing && !held.Complete {
		return nil // nothing was ever sent there, so there is nothing to withdraw
	}
	if s.way.Kind == reach.Wait {
		s.facts.Identity, s.facts.IdentityMessage = conditions.IdentityPending, s.way.Why
		if held.Complete && !state.Unauthorized && s.now.Before(held.Identity.ExpiresAt) {
			s.facts.Identity = conditions.IdentityAccepted
		}
		return nil // the event of the tunnel, or of the changed spec, triggers the next reconciliation
	}
	return r.obtain(ctx, s, held, state.Unauthorized)
}

// obtain requests a token from the peer: a renewal if the peer knows our key, else by first contact.
func (r *reconciler) obtain(ctx context.Context, s *scope, held *identity.Held, unauthorized bool) error {
	token, basis, err := r.peerToken(ctx, s)
	if err != nil {
		return err
	}
	last := r.identityRequests.Get(s.fc.Name)
	usable := held.Complete && !unauthorized && s.now.Before(held.Identity.ExpiresAt)
	if last.Basis == basis && s.now.Before(last.Next) {
		r.report(s, last, usable)
		return nil
	}
	select {
	case r.authSlots <- struct{}{}:
		defer func() { <-r.authSlots }()
	default:
		if last.State == conditions.IdentityNotNeeded {
			last.State, last.Message = conditions.IdentityPending,
				"waiting for requests to other clusters, which use all slots; the next attempt follows within a second"
		}
		last.Next = s.now.Add(time.Second)
		r.report(s, last, usable)
		return nil
	}
	grant, err := r.requestToken(ctx, s, held, token)
	if err == nil {
		if err := r.pinProvider(ctx, s, grant); err != nil {
			return err
		}
		r.identityRequests.Forget(s.fc.Name)
		if held.Complete { // if the new token does not help, the next renewal waits
			r.identityRequests.Set(s.fc.Name, identity.Request{Basis: basis, State: conditions.IdentityAccepted, Next: s.now.Add(identity.RenewalRetry)})
		}
		return r.storeIdentity(ctx, s, held, grant)
	}
	if !errors.As(err, new(*auth.Error)) && !errors.Is(err, context.DeadlineExceeded) {
		return err // a failure of this cluster, not of the peer
	}
	now := identity.Request{Basis: basis}
	now.State, now.Message = identity.Classify(err, s.fc)
	if last.Basis == basis && last.State == now.State {
		now.Failures = last.Failures + 1
	}
	var refusal *auth.Error
	retryAfter := time.Duration(0)
	if errors.As(err, &refusal) {
		retryAfter = refusal.RetryAfter
	}
	now.Next = s.now.Add(identity.NextAttempt(now.State, now.Failures, retryAfter))
	r.identityRequests.Set(s.fc.Name, now)
	r.report(s, now, usable)
	if now.Failures == 0 {
		log.FromContext(ctx).Info("identity not obtained", "clusterID", s.peer.ClusterID, "reason", now.Message)
	}
	return nil
}

// report copies the last result into the facts. A token that is still valid stays accepted while its renewal fails.
func (r *reconciler) report(s *scope, last identity.Request, usable bool) {
	s.requeueWithin(last.Next.Sub(s.now))
	if usable {
		s.facts.Identity = conditions.IdentityAccepted
		return
	}
	s.facts.Identity, s.facts.IdentityMessage = last.State, last.Message
}

// peerToken reads the pre-shared token. basis changes when the peer may answer differently.
func (r *reconciler) peerToken(ctx context.Context, s *scope) (token, basis string, err error) {
	var secret corev1.Secret
	err = r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.TokenSecretName(s.peer.ClusterID)}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("read token of %s: %w", s.peer.ClusterID, err)
	}
	return string(secret.Data[tokenKey]), fmt.Sprintf("%d/%s/%s", s.fc.Generation, secret.ResourceVersion, s.fc.Annotations[labels.OwnKey]), nil
}

// requestToken renews the identity, or makes first contact. After this cluster has replaced its keys, it makes first contact again, with the proof that the
// new keys are its own, and records in held which the provider knows.
func (r *reconciler) requestToken(ctx context.Context, s *scope, held *identity.Held, text string) (auth.Grant, error) {
	token := auth.ParseToken(text)
	provider := authclient.Provider{ID: s.peer.ClusterID, Fingerprint: s.fc.Spec.ClusterKey, Unproven: s.fc.Spec.InsecureSkipProviderVerify, InBand: s.fc.Inside()}
	switch {
	case provider.Fingerprint == "" && text == "" && !provider.Unproven:
		return auth.Grant{}, &auth.Error{Code: http.StatusUnauthorized, Reason: auth.ReasonEmptyDenied, Message: "there is no token"}
	case provider.Fingerprint == "":
		provider.Fingerprint = token.Fingerprint
	case token.Fingerprint != "" && token.Fingerprint != provider.Fingerprint:
		return auth.Grant{}, &auth.Error{Reason: auth.ReasonUnproven, Message: fmt.Sprintf(
			"the token in Secret %s is of a cluster whose key has the fingerprint %s, but spec.clusterKey is %s; correct one of them",
			auth.TokenSecretName(s.peer.ClusterID), token.Fingerprint, provider.Fingerprint)}
	}
	registrar, err := r.dialPeer(s)
	if err != nil {
		return auth.Grant{}, &auth.Error{Reason: auth.ReasonUnreachable, Message: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, identity.RegisterTimeout)
	defer cancel()
	keys, err := r.keys.For(ctx, s.peer.ClusterID)
	if err != nil {
		return auth.Grant{}, err
	}
	known := held.OwnKey == keys.Fingerprint()
	if held.Complete && (known || !s.facts.Outgoing) {
		ours := keys.Key
		if !known && keys.PreviousKey != nil {
			ours = keys.PreviousKey // the peering ends
		}
		grant, err := r.renew(ctx, s, held, registrar, func(by Registrar) identity.Attempt {
			return func(ctx context.Context) (auth.Grant, error) { return by.Renew(ctx, provider, r.options.Local, ours) }
		})
		if err == nil || !errors.Is(err, auth.ErrConflict) && !errors.Is(err, auth.ErrDenied) || !s.facts.Outgoing {
			return grant, err
		}
		// The provider deleted our tenant: make first contact again, with the same key.
	}
	grant, err := registrar.Register(ctx, authclient.Registration{
		Provider: provider, Cluster: r.options.Local, Secret: token.Secret, Key: keys.Key, ClusterKey: keys.Cluster, Previous: keys.Previous(),
	})
	if err == nil {
		held.OwnKey, held.Inside = keys.Fingerprint(), ""
	}
	return grant, err
}

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
