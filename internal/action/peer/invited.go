// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/action/pair"
	"liqo.io/liqo/internal/action/preflight"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
)

// Invited makes this cluster a consumer of the provider that invited it.
func Invited(ctx context.Context, c client.WithWatch, o Options, text string, p action.Progress) error {
	if _, err := invitation.Parse(text); err != nil {
		return err
	}
	if err := o.Networks.Check(); err != nil {
		return err
	}
	token := auth.ParseToken(o.Token)
	if token.Secret == "" || token.Fingerprint == "" {
		return errors.New("the token is not complete; copy all of what `generate peer-command --in-band` printed")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := deletion.AwaitPeers(ctx, c, o.Timeout, o.means, p); err != nil {
		return err
	}
	s := &pair.Cluster{
		Access: pair.Access{Client: c, Namespace: o.Namespace}, Name: o.Name, Outgoing: true,
		Annotations: map[string]string{labels.Invited: pair.Yes},
	}
	if err := s.Read(ctx); err != nil {
		return err
	}
	provider := discoveryv1alpha1.ClusterIdentity{ClusterID: o.ClusterID, ClusterName: o.Name}
	s.Other = &pair.Cluster{Facts: pair.Facts{Identity: provider, Key: token.Fingerprint}}
	if same := s.Facts.Same(o.ClusterID); same != nil {
		s.Name = same.Name
	}
	if failures := judgeInvited(s); len(failures) > 0 {
		return &preflight.Error{Findings: failures}
	}
	if err := o.Networks.JudgeFor(ctx, c, accept.Peer{Namespace: o.Namespace, ClusterID: o.ClusterID, Foreign: s.Facts.Same(o.ClusterID)}, p); err != nil {
		return err
	}
	err := o.held().Store(ctx, c, "invitation", map[string][]byte{tokens.Key: []byte(o.Token), invitation.SecretKey: []byte(strings.TrimSpace(text))})
	if err == nil {
		err = s.Apply(ctx)
	}
	if err != nil {
		return o.held().Withdraw(ctx, c, s.Name, err)
	}
	p.Done("Peering enabled")
	if err := o.Networks.Write(ctx, c, s.Name, p); err != nil {
		return err
	}
	if err := waitPeering(ctx, c, s.Foreign(), o.Timeout, p); err != nil {
		return err
	}
	o.Labels.Apply(ctx, c, s.Name, p)
	accept.HintOverlap(ctx, c, s.Name, p)
	return nil
}

// judgeInvited returns what forbids to accept an invitation. It is pure.
func judgeInvited(s *pair.Cluster) []preflight.Finding {
	fail := func(check, evidence, remedy string) []preflight.Finding {
		return []preflight.Finding{{Check: check, Level: preflight.LevelFailure, Evidence: evidence, Remedy: remedy}}
	}
	switch {
	case s.Facts.Err != nil:
		return fail("Liqo", s.Facts.Err.Error(), "install it, or choose another cluster with --context")
	case s.Facts.Identity.ClusterID == s.Other.Facts.Identity.ClusterID:
		return fail("clusters", "the invitation is one of this cluster itself", "run the command in the other cluster")
	case preflight.JudgeName(s.Name) != nil:
		return fail("name", fmt.Sprintf("%.60q is not the name of a cluster", s.Name), "choose lower-case letters, digits and -")
	}
	found := s.Judge()
	for i := range found {
		found[i].Level = preflight.LevelFailure
	}
	return found
}
