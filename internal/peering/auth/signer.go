// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"time"
)

// signer signs answers with the key that a consumer knows.
type signer struct {
	key       ed25519.PrivateKey
	successor *successor
}

func (s *Server) signer(ctx context.Context, q question) (signer, error) {
	keys, err := s.options.Keys.ClusterKeys(ctx)
	if err != nil {
		return signer{}, unavailable(err)
	}
	private, found := keys.Find(q.Provider)
	if !found {
		return signer{}, refuse(http.StatusForbidden, ReasonConflict,
			"the requesting cluster knows %s with a key that it no longer has; "+
				"run `liqoctl generate peer-command` for this cluster, and the printed command in the requesting cluster", s.options.Cluster.ClusterName)
	}
	return signer{private, successorOf(private, keys)}, nil
}

// answer seals the token of a grant and signs all of it.
func (s signer) answer(g Grant, to answerTo) (grantAnswer, error) {
	answer := grantAnswer{
		Namespace: g.Namespace, ExpiresIn: int64(g.Lifetime / time.Second), APIServerURL: g.APIServerURL, APIServerCA: g.APIServerCA, Ways: g.Ways, Successor: s.successor,
	}
	if g.Token != "" {
		var err error
		if answer.SealedToken, err = seal(to.question.SealTo, to.sealInfo(), []byte(g.Token)); err != nil {
			return grantAnswer{}, invalid("question.sealTo is not an X25519 key")
		}
	}
	answer.Signature = ed25519.Sign(s.key, answer.signed(to))
	return answer, nil
}
