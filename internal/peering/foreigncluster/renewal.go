// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/auth"
)

// An authentication service that everyone can reach can be held by everyone, the way there be closed, or someone else answer there. A consumer with a tunnel then renews its identity
// through that, and the provider's proxy (docs/adr/0037-a-second-way-to-renew.md).

// silence is how long the first way may be silent before the other one is asked as well. A renewal takes some milliseconds.
const silence = 2 * time.Second

// renewsInside reports whether the peer, a consumer, is to reach our authentication service through the tunnel: to renew its identity only.
func (s *scope) renewsInside() bool {
	return !s.fc.InBand() && !isInvitation(s.fc) && s.facts.admitted && s.facts.tunnel != nil && len(s.facts.copies) > 0 &&
		s.facts.incoming != nil && s.facts.incoming.State == discoveryv1alpha1.IncomingAccepted
}

// secondWay is the way through the tunnel to the authentication service of a provider that is usually reached directly; why not, if there is none. The
// provider offers a URL, and this cluster has chosen the network in which it must be.
func (s *scope) secondWay() (second way, why string) {
	offered := ""
	if s.facts.slice != nil {
		offered = s.facts.slice.Status.ProxyURL
	}
	switch {
	case s.fc.Inside():
		return way{}, "the tunnel is the first way already"
	case s.fc.Spec.ClusterKey == "":
		return way{}, "no key of the provider is pinned"
	case offered == "":
		return way{}, "the provider offers none"
	case !usable(s.facts.tunnel):
		return way{}, "the tunnel is not up"
	case !leadsInside(offered, s.facts.tunnel):
		return way{}, "what the provider offers does not lead into its network " + externalOf(s.facts.tunnel)
	}
	return way{discoveryv1alpha1.AuthURLInside, offered}, ""
}

// renew renews the identity, by the second way if the direct one gives none, and records in held why.
func (r *reconciler) renew(ctx context.Context, s *scope, held *heldIdentity, direct Registrar, by func(Registrar) attempt) (auth.Grant, error) {
	held.inside = ""
	second, why := s.secondWay()
	if why != "" {
		log.FromContext(ctx).V(1).Info("renewing the identity, with one way to the provider", "clusterID", s.peer.ClusterID, "reason", why)
		return by(direct)(ctx)
	}
	fc := s.fc.DeepCopy()
	// The certificate has no name that is used inside. The tunnel encrypts it all, and the pinned key proves the provider.
	fc.Spec.ForeignAuthURL, fc.Spec.ForeignProxyURL, fc.Spec.InsecureSkipTLSVerify = second.authURL, second.proxyURL, new(true)
	inside, err := r.options.Dial(fc)
	if err != nil {
		return by(direct)(ctx)
	}
	grant, failed, err := either(ctx, by(direct), by(inside), silence)
	if err == nil && failed != nil {
		held.inside = whyInside(s.fc.Spec.ForeignAuthURL, failed)
		log.FromContext(ctx).Info("identity renewed through the tunnel", "clusterID", s.peer.ClusterID, "reason", held.inside, "answer", failed.Error())
	}
	return grant, err
}

// unprovenInside is the prefix of whyInside if another service answers in the place of the provider's. What a service sends follows later in the text, and cannot imitate it.
const unprovenInside = "an unproven service answers at "

// whyInside is why an identity was renewed through the tunnel although the provider is usually reached at a URL.
func whyInside(url string, failed error) string {
	const most = 384
	switch {
	case errors.Is(failed, auth.ErrUnproven):
		return printable.Line(unprovenInside+url+", and the provider has proven itself through the tunnel: another cluster may have this address now, or a machine on the way "+
			"answers in its place; correct spec.foreignAuthUrl, or find out what answers there", most)
	case noAnswer(failed):
		return printable.Line(fmt.Sprintf("no authentication service answered at %s (%v)", url, failed), most)
	}
	return printable.Line(fmt.Sprintf("what answers at %s gave no identity, and has not proven that it is the provider (%v)", url, failed), most)
}

// attempt asks for an identity by one way.
type attempt func(context.Context) (auth.Grant, error)

// errSilent is why the second way was asked while the first one could still answer.
var errSilent = silentFor(silence)

func silentFor(so time.Duration) error {
	return &auth.Error{Reason: auth.ReasonUnreachable, Message: fmt.Sprintf("silent for %v", so)}
}

// secondTimeout is how long the second way may take after a service answered by the first one and gave no identity: what that answer means has to be handled within
// the same time.
const secondTimeout = 5 * time.Second

// either asks by the first way, and by the second one as well as soon as the first one fails, or is silent for long. A grant counts at once: it is signed, and
// no other answer is, so one by one way does not end the other. failed is why there was no grant by the first way, if it came by the second one.
func either(ctx context.Context, first, second attempt, silence time.Duration) (grant auth.Grant, failed, err error) {
	type answer struct {
		second bool
		grant  auth.Grant
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the other attempt
	answers := make(chan answer, 2)
	ask := func(is bool, by attempt) {
		grant, err := by(ctx)
		answers <- answer{is, grant, err}
	}
	go ask(false, first)
	silent := time.NewTimer(silence)
	defer silent.Stop()
	var other error // of the second way
	var late <-chan time.Time
	for waiting, asked := 1, false; ; {
		select {
		case <-silent.C:
			failed = cmp.Or(failed, errSilent)
		case <-late:
			return auth.Grant{}, nil, failedBoth(failed, silentFor(secondTimeout))
		case got := <-answers:
			waiting--
			switch {
			case got.err == nil && got.second:
				return got.grant, failed, nil
			case got.err == nil:
				return got.grant, nil, nil
			case got.second:
				other = got.err
			default:
				failed = got.err
				if !noAnswer(failed) {
					late = time.After(secondTimeout)
				}
			}
		}
		if !asked && failed != nil {
			asked = true
			waiting++
			go ask(true, second)
		}
		if waiting == 0 {
			return auth.Grant{}, nil, failedBoth(failed, other)
		}
	}
}

// failedBoth is the error of two ways that failed: that of the first one if a service answered, so that callers know what it refused, else that of the second
// one. The first answer is not signed, and does not have the next try wait longer than an answer by the second way does.
func failedBoth(first, second error) error {
	const most = 512
	message := printable.Line(first.Error(), most) + "; through the tunnel: " + printable.Line(second.Error(), most)
	var refusal, other *auth.Error
	switch {
	case noAnswer(first) && noAnswer(second):
		return &auth.Error{Reason: auth.ReasonUnreachable, Message: message}
	case noAnswer(first):
		return second
	case !errors.As(first, &refusal):
		return first // a failure of this cluster
	}
	both := *refusal
	both.Message = message
	if errors.As(second, &other) && !noAnswer(second) {
		both.RetryAfter = min(both.RetryAfter, other.RetryAfter)
	}
	return &both
}

// noAnswer reports whether an attempt failed because no authentication service answered.
func noAnswer(err error) bool {
	return errors.Is(err, auth.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

// storeIdentity stores a new token and connects with it.
func (r *reconciler) storeIdentity(ctx context.Context, s *scope, held *heldIdentity, grant auth.Grant) error {
	now := r.options.Now() // the request took time
	var before *remote.Identity
	if held.complete {
		before = new(held.identity)
	}
	wasInside := s.facts.renewedInside
	held.identity = remote.Identity{
		Namespace: grant.Namespace, APIServerURL: grant.APIServerURL, APIServerCA: grant.APIServerCA,
		ProxyURL: s.peerProxy(), Token: grant.Token, RenewAt: now.Add(grant.Lifetime / 2), ExpiresAt: now.Add(grant.Lifetime), Invited: s.invited(),
	}
	held.complete = true
	if err := r.writeIdentity(ctx, s, held); err != nil {
		return err
	}
	grantEvent(before, held.identity, now).Send(r.events, s.fc, "ReadGrant")
	insideEvent(wasInside, held.inside).Send(r.events, s.fc, "RenewIdentity")
	s.facts.renewedInside = held.inside
	log.FromContext(ctx).Info("identity accepted", "clusterID", s.peer.ClusterID, "namespace", grant.Namespace, "lifetime", grant.Lifetime.String())
	s.facts.identity = identityAccepted
	s.requeueWithin(held.identity.RenewAt.Sub(s.now))
	return r.connect(ctx, s, held)
}

func (r *reconciler) writeIdentity(ctx context.Context, s *scope, held *heldIdentity) error {
	notes := map[string]string{labels.OwnKey: held.ownKey}
	if held.inside != "" {
		notes[labels.RenewedInside] = held.inside
	}
	intent := corev1apply.Secret(remote.SecretName(s.peer.ClusterID), s.namespace).WithData(held.identity.Data()).WithType(corev1.SecretTypeOpaque).
		WithAnnotations(notes).
		WithLabels(map[string]string{labels.LocalIdentity: labels.True, labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf})
	return r.own.ApplyTo(ctx, intent, nil)
}
