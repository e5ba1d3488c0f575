// SPDX-License-Identifier: Apache-2.0

package peering

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

// An authentication service that everyone can reach can be held by everyone, and the way there be closed. A consumer with a tunnel then renews its identity
// through that, and the provider's proxy (docs/adr/0037-a-second-way-to-renew.md).

// silence is how long the first way may be silent before the other one is asked as well. A renewal takes some milliseconds.
const silence = 2 * time.Second

// renewsInside reports whether the peer, a consumer, is to reach our authentication service through the tunnel: to renew its identity only.
func (s *scope) renewsInside() bool {
	return !isInBand(s.fc) && !isInvitation(s.fc) && s.facts.admitted && s.facts.tunnel != nil && len(s.facts.copies) > 0 &&
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

// renew renews the identity, by the second way if the direct one is closed, and records in held why.
func (r *fcReconciler) renew(ctx context.Context, s *scope, held *heldIdentity, direct Registrar, by func(Registrar) attempt) (auth.Grant, error) {
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
	grant, closed, err := either(ctx, by(direct), by(inside), silence)
	if err == nil && closed != nil {
		const most = 256
		held.inside = printable.Line(fmt.Sprintf("no authentication service answered at %s (%v)", s.fc.Spec.ForeignAuthURL, closed), most)
		log.FromContext(ctx).Info("identity renewed through the tunnel", "clusterID", s.peer.ClusterID, "reason", held.inside)
	}
	return grant, err
}

// attempt asks for an identity by one way.
type attempt func(context.Context) (auth.Grant, error)

// errSilent is why the second way was asked while the first one could still answer.
var errSilent = fmt.Errorf("silent for %v", silence)

// either asks by the first way, and by the second one as well as soon as the first one fails because nothing answers, or is silent for long. The first answer
// counts, a refusal too. closed is why the first way did not answer if the grant came by the second one.
func either(ctx context.Context, first, second attempt, silence time.Duration) (grant auth.Grant, closed, err error) {
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
	var failed [2]error // of the first way, and of the second
	for waiting, asked := 1, false; ; {
		select {
		case <-silent.C:
			closed = cmp.Or(closed, errSilent)
		case got := <-answers:
			waiting--
			if !noAnswer(got.err) {
				if !got.second {
					closed = nil
				}
				return got.grant, closed, got.err
			}
			if got.second {
				failed[1] = got.err
			} else {
				failed[0], closed = got.err, got.err
			}
		}
		if !asked && closed != nil {
			asked = true
			waiting++
			go ask(true, second)
		}
		if waiting == 0 {
			return auth.Grant{}, nil, &auth.Error{Reason: auth.ReasonUnreachable, Message: fmt.Sprintf("%v; through the tunnel: %v", failed[0], failed[1])}
		}
	}
}

// noAnswer reports whether an attempt failed because no authentication service answered.
func noAnswer(err error) bool {
	return errors.Is(err, auth.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

// storeIdentity stores a new token and connects with it.
func (r *fcReconciler) storeIdentity(ctx context.Context, s *scope, held *heldIdentity, grant auth.Grant) error {
	now := r.options.Now() // the request took time
	var before *remote.Identity
	if held.complete {
		before = new(held.identity)
	}
	wasInside := s.facts.renewedInside != ""
	held.identity = remote.Identity{
		Namespace: grant.Namespace, APIServerURL: grant.APIServerURL, APIServerCA: grant.APIServerCA,
		ProxyURL: s.peerProxy(), Token: grant.Token, RenewAt: now.Add(grant.Lifetime / 2), ExpiresAt: now.Add(grant.Lifetime), Invited: s.invited(),
	}
	held.complete = true
	if err := r.writeIdentity(ctx, s, held); err != nil {
		return err
	}
	grantEvent(before, held.identity, now).send(r.events, s.fc, "ReadGrant")
	insideEvent(wasInside, held.inside).send(r.events, s.fc, "RenewIdentity")
	s.facts.renewedInside = held.inside
	log.FromContext(ctx).Info("identity accepted", "clusterID", s.peer.ClusterID, "namespace", grant.Namespace, "lifetime", grant.Lifetime.String())
	s.facts.identity = identityAccepted
	s.requeueWithin(held.identity.RenewAt.Sub(s.now))
	return r.connect(ctx, s, held)
}

func (r *fcReconciler) writeIdentity(ctx context.Context, s *scope, held *heldIdentity) error {
	notes := map[string]string{labels.OwnKey: held.ownKey}
	if held.inside != "" {
		notes[labels.RenewedInside] = held.inside
	}
	intent := corev1apply.Secret(remote.SecretName(s.peer.ClusterID), s.namespace).WithData(held.identity.Data()).WithType(corev1.SecretTypeOpaque).
		WithAnnotations(notes).
		WithLabels(map[string]string{labels.LocalIdentity: annotationTrue, labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf})
	return r.own.ApplyTo(ctx, intent, nil)
}
