// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/peering/auth"
)

// TokenSource returns the tokens that this cluster accepts.
type TokenSource interface {
	Tokens(ctx context.Context) ([]auth.AcceptedToken, error)
}

// minSecret is the least length of a secret, in bytes. A client on the way sees the proof, and could guess a shorter one.
const minSecret = 16

// SecretTokens reads the tokens from the Secrets auth-token and liqo-peer-tokens. One of them may be missing.
type SecretTokens struct {
	Secrets   corev1client.SecretsGetter
	Namespace string
}

// Tokens reads the Secrets from the API server, so that a changed token counts at once.
func (s SecretTokens) Tokens(ctx context.Context) ([]auth.AcceptedToken, error) {
	var all []auth.AcceptedToken
	shared, err := s.read(ctx, auth.SharedTokenSecret)
	if err != nil {
		return nil, err
	}
	if shared != nil {
		secret := auth.ParseToken(string(shared.Data[auth.SharedTokenKey])).Secret
		switch {
		case secret == "":
			// An empty Secret must neither admit everyone nor look like a wrong token.
			return nil, errNoToken
		case len(secret) < minSecret:
			return nil, fmt.Errorf("the token in Secret %s has %d characters, at least %d are needed; delete it, then `liqoctl upgrade` creates it again",
				auth.SharedTokenSecret, len(secret), minSecret)
		}
		all = append(all, auth.AcceptedToken{Secret: secret})
	}
	issued, err := s.read(ctx, auth.IssuedTokensSecret)
	if err != nil {
		return nil, err
	}
	if issued == nil {
		return all, nil
	}
	for id, text := range issued.Data {
		var one auth.AcceptedToken
		// One that was written by hand and is wrong must not disable the others.
		if json.Unmarshal(text, &one) == nil && len(one.Secret) >= minSecret && auth.TokenID(one.Secret) == id {
			all = append(all, one)
		}
	}
	return all, nil
}

// read returns nil if there is no such Secret.
func (s SecretTokens) read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := s.Secrets.Secrets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the tokens in Secret %s: %w", name, err)
	}
	return secret, nil
}

var errNoToken = errors.New("the Secret " + auth.SharedTokenSecret + " has no key " +
	auth.SharedTokenKey + "; delete it, then `liqoctl upgrade` creates it again")
