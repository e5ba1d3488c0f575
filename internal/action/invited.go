// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
)

// AcceptInvitation makes this cluster a consumer of the provider that invited it.
func AcceptInvitation(ctx context.Context, c client.WithWatch, o PeerOptions, text string, p Progress) error {
	if _, err := invitation.Parse(text); err != nil {
		return err
	}
	if err := o.Networks.check(); err != nil {
		return err
	}
	token := auth.ParseToken(o.Token)
	if token.Secret == "" || token.Fingerprint == "" {
		return errors.New("the token is not complete; copy all of what `generate peer-command --in-band` printed")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := awaitGone(ctx, c, o.Timeout, o.means, p); err != nil {
		return err
	}
	s := &side{Access: Access{Client: c, Namespace: o.Namespace}, name: o.Name, outgoing: true, annotations: map[string]string{labels.Invited: annotationYes}}
	if err := s.read(ctx); err != nil {
		return err
	}
	provider := discoveryv1alpha1.ClusterIdentity{ClusterID: o.ClusterID, ClusterName: o.Name}
	s.other = &side{facts: sideFacts{identity: provider, key: token.Fingerprint}}
	if same := s.facts.same(o.ClusterID); same != nil {
		s.name = same.Name
	}
	if failures := judgeInvited(s); len(failures) > 0 {
		return &PreflightError{Findings: failures}
	}
	if err := o.Networks.judgeFor(ctx, c, networkPeer{o.Namespace, o.ClusterID, s.facts.same(o.ClusterID)}, p); err != nil {
		return err
	}
	err := o.held().store(ctx, c, "invitation", map[string][]byte{tokenKey: []byte(o.Token), invitation.SecretKey: []byte(strings.TrimSpace(text))})
	if err == nil {
		err = s.apply(ctx)
	}
	if err != nil {
		return o.held().withdraw(ctx, c, s.name, err)
	}
	p.Done("Peering enabled")
	if err := o.Networks.write(ctx, c, s.name, p); err != nil {
		return err
	}
	if err := waitPeering(ctx, c, s.foreign(), o.Timeout, p); err != nil {
		return err
	}
	o.Labels.accept(ctx, c, s.name, p)
	hintNetworks(ctx, c, s.name, p)
	return nil
}

// judgeInvited returns what forbids to accept an invitation. It is pure.
func judgeInvited(s *side) []Finding {
	fail := func(check, evidence, remedy string) []Finding {
		return []Finding{{Check: check, Level: LevelFailure, Evidence: evidence, Remedy: remedy}}
	}
	switch {
	case s.facts.err != nil:
		return fail("Liqo", s.facts.err.Error(), "install it, or choose another cluster with --context")
	case s.facts.identity.ClusterID == s.other.facts.identity.ClusterID:
		return fail("clusters", "the invitation is one of this cluster itself", "run the command in the other cluster")
	case judgeName(s.name) != nil:
		return fail("name", fmt.Sprintf("%.60q is not the name of a cluster", s.name), "choose lower-case letters, digits and -")
	}
	found := s.judge()
	for i := range found {
		found[i].Level = LevelFailure
	}
	return found
}
