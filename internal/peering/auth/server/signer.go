// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"time"

	"liqo.io/liqo/internal/peering/auth"
)

// signer signs answers with the key that a consumer knows.
type signer struct {
	key       ed25519.PrivateKey
	successor *auth.Successor
}

func (s *Server) signer(ctx context.Context, q auth.Question) (signer, error) {
	keys, err := s.options.Keys.ClusterKeys(ctx)
	if err != nil {
		return signer{}, auth.Unavailable(err)
	}
	private, found := keys.Find(q.Provider)
	if !found {
		return signer{}, auth.Refuse(http.StatusForbidden, auth.ReasonConflict,
			"the requesting cluster knows %s with a key that it no longer has; "+
				"run `liqoctl generate peer-command` for this cluster, and the printed command in the requesting cluster", s.options.Cluster.ClusterName)
	}
	return signer{private, successorOf(private, keys)}, nil
}

// answer seals the token of a grant and signs all of it.
func (s signer) answer(g auth.Grant, to auth.AnswerTo) (auth.GrantAnswer, error) {
	answer := auth.GrantAnswer{
		Namespace: g.Namespace, ExpiresIn: int64(g.Lifetime / time.Second), APIServerURL: g.APIServerURL, APIServerCA: g.APIServerCA, Ways: g.Ways,
		Successor: s.successor,
	}
	if g.Token != "" {
		var err error
		if answer.SealedToken, err = auth.Seal(to.Question.SealTo, to.SealInfo(), []byte(g.Token)); err != nil {
			return auth.GrantAnswer{}, auth.Invalid("question.sealTo is not an X25519 key")
		}
	}
	answer.Signature = ed25519.Sign(s.key, answer.Signed(to))
	return answer, nil
}
