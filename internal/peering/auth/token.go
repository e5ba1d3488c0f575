// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// TokenSource returns the pre-shared token. It is called for each request, so that a replaced token is invalid at once.
type TokenSource interface {
	Token(ctx context.Context) (string, error)
}

// The Secret with the pre-shared token.
const (
	tokenSecret = "auth-token"
	tokenKey    = "token"
)

// SecretToken reads the token from the Secret auth-token.
type SecretToken struct {
	Secrets   corev1client.SecretsGetter
	Namespace string
}

// Token returns the current token.
func (s SecretToken) Token(ctx context.Context) (string, error) {
	secret, err := s.Secrets.Secrets(s.Namespace).Get(ctx, tokenSecret, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the pre-shared token: %w", err)
	}
	// Secrets written by hand often end with a newline.
	return strings.TrimSpace(string(secret.Data[tokenKey])), nil
}

var errNoToken = errors.New("the Secret " + tokenSecret + " has no key " + tokenKey + "; delete it, then `liqoctl upgrade` creates it again")

// checkToken returns nil for the right token, and for the empty one if authentication is off.
func (s *Server) checkToken(ctx context.Context, token string) error {
	if token == "" {
		if !s.options.EnableAuthentication {
			return nil
		}
		return refuse(http.StatusUnauthorized, ReasonEmptyDenied,
			"this cluster requires a token, and the request has none; `liqoctl generate peer-command`, run for this cluster, prints it")
	}
	want, err := s.options.Tokens.Token(ctx)
	if err != nil {
		return unavailable(err)
	}
	if want == "" {
		// An empty Secret must neither admit everyone nor look like a wrong token.
		return unavailable(errNoToken)
	}
	// Comparing hashes takes the same time for tokens of any length.
	given, expected := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
	if subtle.ConstantTimeCompare(given[:], expected[:]) != 1 {
		return refuse(http.StatusUnauthorized, ReasonDenied,
			"the token is not that of this cluster; `liqoctl generate peer-command`, run for this cluster, prints it")
	}
	return nil
}
