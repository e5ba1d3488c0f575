// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/key"
	"liqo.io/liqo/internal/peering/replicate"
)

// tokenSecretName is the Secret with a peer's token of first contact, in the install namespace.
func tokenSecretName(clusterID string) string { return "remote-token-" + clusterID }

const tokenKey = "token"

// rootSecretName is the Secret, in the install namespace, with what this cluster's keys are made of. It outlives peerings: a
// provider that was away while it was unpeered has pinned the key, and knows us when it comes back.
const (
	rootSecretName = "liqo-peering-key"
	rootKey        = "root"
)

const (
	// movedAfter is how long an API server may be silent before its cluster is asked where it is now.
	movedAfter = 30 * time.Second
	// askAgain is the pause between two identities that were both given.
	askAgain = 2 * time.Minute
)

// heldIdentity is what we hold in a peer.
type heldIdentity struct {
	secret   *corev1.Secret
	identity remote.Identity
	complete bool
}

// attempts remembers, per ForeignCluster, when its peer may be asked again and what it said. All of it may be
// lost: then the peer is asked once more.
type attempts struct {
	mu  sync.Mutex
	all map[string]attempt
}

type attempt struct {
	next     time.Time
	failures int
	state    identityState
	message  string
	// basis is what the answer depends on: the generation of the spec and the version of the token.
	basis string
}

func newAttempts() *attempts { return &attempts{all: map[string]attempt{}} }

func (a *attempts) get(name string) attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name]
}

func (a *attempts) set(name string, now attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[name] = now
}

func (a *attempts) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, name)
}

// nextAttempt says after which time a refusal is worth another question. A changed token or spec does not wait for it.
func nextAttempt(state identityState, failures int, asked time.Duration) time.Duration {
	if asked > 0 {
		return min(asked, 5*time.Minute)
	}
	first, most := time.Second, 30*time.Second
	if state != identityUnreachable && state != identityError {
		first, most = 5*time.Second, 5*time.Minute // somebody has to do something first
	}
	return min(first<<min(failures, 10), most)
}

// classify turns the answer of an authentication service into a state and a sentence.
func classify(err error, fc *discoveryv1alpha1.ForeignCluster) (identityState, string) {
	peer := fc.Name
	switch {
	case errors.Is(err, auth.ErrEmptyDenied):
		return identityEmptyDenied, fmt.Sprintf("the remote cluster wants a token, and Secret %s is missing or empty: "+
			"run `liqoctl generate peer-command` there, and paste what it prints here", tokenSecretName(fc.Spec.ClusterIdentity.ClusterID))
	case errors.Is(err, auth.ErrDenied):
		return identityDenied, fmt.Sprintf("the remote cluster refuses the token (%v): run `liqoctl generate peer-command` there, and paste what it prints here", err)
	case errors.Is(err, auth.ErrConflict):
		return identityDenied, fmt.Sprintf("the remote cluster refuses our key: %v", err)
	case errors.Is(err, auth.ErrVersion):
		return identityVersion, err.Error()
	case errors.Is(err, auth.ErrTooMany):
		return identityError, fmt.Sprintf("the remote cluster asks us to slow down: %v", err)
	case errors.Is(err, auth.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return identityUnreachable, fmt.Sprintf("nobody answers at %s (%v): check that the address is right and reachable from this cluster, "+
			"and that `liqoctl status` is well over there", fc.Spec.ForeignAuthURL, err)
	default:
		return identityError, fmt.Sprintf("the authentication service of %s failed: %v", peer, err)
	}
}

// askIdentity fills in who answers at the authentication URL.
func (r *fcReconciler) askIdentity(ctx context.Context, s *scope) error {
	registrar, err := r.options.Dial(s.fc)
	if err != nil {
		s.facts.problem = &problem{discoveryv1alpha1.ReasonIdentityMismatch, fmt.Sprintf("foreignAuthUrl: %v", err)}
		return errLater
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ids, err := registrar.IDs(ctx)
	if err != nil {
		s.facts.identity, s.facts.identityMessage = identityUnreachable, fmt.Sprintf("asked %s which cluster it belongs to: %v", s.fc.Spec.ForeignAuthURL, err)
		s.lookAgain(5 * time.Second)
		return errLater
	}
	s.version = ids.Version
	if known := s.fc.Spec.ClusterIdentity; known != nil && known.ClusterID != "" && known.ClusterID != ids.ClusterID {
		s.facts.problem = &problem{discoveryv1alpha1.ReasonIdentityMismatch, fmt.Sprintf(
			"the spec says cluster ID %s, and cluster %s answers at %s; correct one of the two", known.ClusterID, ids.ClusterID, s.fc.Spec.ForeignAuthURL)}
		s.lookAgain(time.Minute)
		return errLater
	}
	before := s.fc.DeepCopy()
	s.fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: ids.ClusterID, ClusterName: ids.ClusterName}
	if err := r.patch(ctx, s, before); err != nil {
		return err
	}
	return errLater // the changed object brings us back
}

// ensureIdentity holds a valid token of the peer as long as one is needed, and none any longer.
func (r *fcReconciler) ensureIdentity(ctx context.Context, s *scope) error {
	held, err := r.readIdentity(ctx, s)
	if err != nil {
		return err
	}
	if !s.facts.outgoing && s.facts.slice == nil {
		r.attempts.forget(s.fc.Name)
		if held.secret == nil || s.fc.DeletionTimestamp != nil {
			return nil // with the ForeignCluster, the whole namespace goes
		}
		if err := r.client.Delete(ctx, held.secret, client.Preconditions{UID: &held.secret.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete identity %s/%s: %w", held.secret.Namespace, held.secret.Name, err)
		}
		return nil
	}
	state := r.options.Link.State(s.peer.ClusterID)
	if held.complete {
		// Connected even with an old token: the token may still be good, and the state of the link is a fact.
		if err := r.connect(ctx, s, held); err != nil {
			return err
		}
		if wait := renewIn(held.identity.RenewAt, state, s.now); wait > 0 {
			s.facts.identity = identityAccepted
			s.lookAgain(wait)
			if state.Ready {
				r.attempts.forget(s.fc.Name)
			}
			return nil
		}
	}
	if !s.facts.outgoing && !held.complete {
		return nil // nothing was ever sent there, so there is nothing to fetch back
	}
	return r.obtain(ctx, s, held, state.Unauthorized)
}

// renewIn says after which time the peer is to be asked for another identity: at half life; when its API server no longer takes the
// token; and when that does not answer for long, because it may have moved, or have another certificate.
func renewIn(renewAt time.Time, state replicate.State, now time.Time) time.Duration {
	if state.Unauthorized {
		return 0
	}
	wait := renewAt.Sub(now)
	if state.Connected && !state.Ready {
		wait = min(wait, state.Since.Add(movedAfter).Sub(now))
	}
	return max(wait, 0)
}

// readIdentity reads the Secret live: Secrets of tenants are in no cache.
func (r *fcReconciler) readIdentity(ctx context.Context, s *scope) (*heldIdentity, error) {
	var secret corev1.Secret
	at := client.ObjectKey{Namespace: s.namespace, Name: remote.SecretName(s.peer.ClusterID)}
	err := r.live.Get(ctx, at, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return &heldIdentity{}, nil
	case apierrors.IsForbidden(err) && s.fc.DeletionTimestamp != nil:
		return &heldIdentity{}, nil // the right to read it is gone already
	case err != nil:
		return nil, fmt.Errorf("read identity %s: %w", at, err)
	}
	held := &heldIdentity{secret: &secret}
	if held.identity, err = remote.ParseIdentity(secret.Data); err != nil {
		log.FromContext(ctx).Error(err, "identity not readable, another one is asked for", "secret", at.String())
		return held, nil
	}
	held.complete = true
	return held, nil
}

// obtain asks the peer for a token: a renewal if it knows our key, first contact otherwise.
func (r *fcReconciler) obtain(ctx context.Context, s *scope, held *heldIdentity, unauthorized bool) error {
	token, basis, err := r.peerToken(ctx, s)
	if err != nil {
		return err
	}
	last := r.attempts.get(s.fc.Name)
	usable := held.complete && !unauthorized && s.now.Before(held.identity.ExpiresAt)
	if last.basis == basis && s.now.Before(last.next) {
		r.report(s, last, usable)
		return nil
	}
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	default:
		if last.state == identityNotNeeded {
			last.state, last.message = identityPending, "other clusters are being asked, this one is next"
		}
		last.next = s.now.Add(time.Second)
		r.report(s, last, usable)
		return nil
	}
	grant, err := r.ask(ctx, s, held, token)
	if err == nil {
		r.attempts.forget(s.fc.Name)
		if held.complete { // if that did not help, it is asked again, but not at once
			r.attempts.set(s.fc.Name, attempt{basis: basis, state: identityAccepted, next: s.now.Add(askAgain)})
		}
		return r.keep(ctx, s, held, grant)
	}
	if !errors.As(err, new(*auth.Error)) && !errors.Is(err, context.DeadlineExceeded) {
		return err // ours to solve, not the peer's
	}
	now := attempt{basis: basis}
	now.state, now.message = classify(err, s.fc)
	if last.basis == basis && last.state == now.state {
		now.failures = last.failures + 1
	}
	var refusal *auth.Error
	retryAfter := time.Duration(0)
	if errors.As(err, &refusal) {
		retryAfter = refusal.RetryAfter
	}
	now.next = s.now.Add(nextAttempt(now.state, now.failures, retryAfter))
	r.attempts.set(s.fc.Name, now)
	r.report(s, now, usable)
	if now.failures == 0 {
		log.FromContext(ctx).Info("identity not obtained", "clusterID", s.peer.ClusterID, "reason", now.message)
	}
	return nil
}

// report puts the last answer into the facts. A token that is still good stays accepted while its renewal fails.
func (r *fcReconciler) report(s *scope, last attempt, usable bool) {
	s.lookAgain(last.next.Sub(s.now))
	if usable {
		s.facts.identity = identityAccepted
		return
	}
	s.facts.identity, s.facts.identityMessage = last.state, last.message
}

// peerToken reads the token of first contact; basis changes when another answer of the peer may be expected.
func (r *fcReconciler) peerToken(ctx context.Context, s *scope) (token, basis string, err error) {
	var secret corev1.Secret
	err = r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: tokenSecretName(s.peer.ClusterID)}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("read token of %s: %w", s.peer.ClusterID, err)
	}
	return string(secret.Data[tokenKey]), fmt.Sprintf("%d/%s", s.fc.Generation, secret.ResourceVersion), nil
}

func (r *fcReconciler) ask(ctx context.Context, s *scope, held *heldIdentity, token string) (auth.Grant, error) {
	registrar, err := r.options.Dial(s.fc)
	if err != nil {
		return auth.Grant{}, &auth.Error{Reason: auth.ReasonUnreachable, Message: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	ours, err := r.key(ctx, s.peer.ClusterID)
	if err != nil {
		return auth.Grant{}, err
	}
	if held.complete {
		grant, err := registrar.Renew(ctx, r.options.Local, ours)
		if err == nil || !errors.Is(err, auth.ErrConflict) && !errors.Is(err, auth.ErrDenied) || !s.facts.outgoing {
			return grant, err
		}
		// The tenant is gone over there: begin anew, with the same key.
	}
	return registrar.Register(ctx, auth.Registration{Cluster: r.options.Local, Token: token, Key: ours})
}

// key is the one that this cluster shows to one provider.
func (r *fcReconciler) key(ctx context.Context, providerID string) (ed25519.PrivateKey, error) {
	root, err := r.root(ctx)
	if err != nil {
		return nil, err
	}
	derived, err := key.Derive(root, providerID)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w; if it is deleted, another one is made, and providers that know this cluster must unpeer it first",
			r.options.Namespace, rootSecretName, err)
	}
	return derived, nil
}

// root reads what the keys are made of, or makes it. It is read each time, which is seldom: an administrator may have replaced it.
func (r *fcReconciler) root(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	at := client.ObjectKey{Namespace: r.options.Namespace, Name: rootSecretName}
	err := r.live.Get(ctx, at, &secret)
	if apierrors.IsNotFound(err) {
		root := make([]byte, key.RootSize)
		_, _ = rand.Read(root) // never fails
		secret = corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{labels.AppPartOf: labels.PartOf}},
			Data:       map[string][]byte{rootKey: root},
		}
		if err = r.client.Create(ctx, &secret, client.FieldOwner(labels.OwnerForeignCluster)); apierrors.IsAlreadyExists(err) {
			err = r.live.Get(ctx, at, &secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read or make Secret %s: %w", at, err)
	}
	return secret.Data[rootKey], nil
}

// keep writes a new token down and hands it to the link.
func (r *fcReconciler) keep(ctx context.Context, s *scope, held *heldIdentity, grant auth.Grant) error {
	now := r.options.Now() // asking took time
	held.identity = remote.Identity{
		Namespace: grant.Namespace, APIServerURL: grant.APIServerURL, APIServerCA: grant.APIServerCA,
		ProxyURL: s.fc.Spec.ForeignProxyURL, Token: grant.Token, RenewAt: now.Add(grant.Lifetime / 2), ExpiresAt: now.Add(grant.Lifetime),
	}
	held.complete = true
	if err := r.writeIdentity(ctx, s, held.identity.Data()); err != nil {
		return err
	}
	log.FromContext(ctx).Info("identity accepted", "clusterID", s.peer.ClusterID, "namespace", grant.Namespace, "lifetime", grant.Lifetime.String())
	s.facts.identity = identityAccepted
	s.lookAgain(held.identity.RenewAt.Sub(s.now))
	return r.connect(ctx, s, held)
}

func (r *fcReconciler) writeIdentity(ctx context.Context, s *scope, data map[string][]byte) error {
	intent := corev1apply.Secret(remote.SecretName(s.peer.ClusterID), s.namespace).WithData(data).WithType(corev1.SecretTypeOpaque).
		WithLabels(map[string]string{labels.LocalIdentity: annotationTrue, labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf})
	return r.own.ApplyTo(ctx, intent, nil)
}
