// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/kube/clusterkey"
)

// Token is what a provider gives to the administrator of a consumer, as the text SECRET.FINGERPRINT. The secret proves the consumer to the
// provider and is never sent. The fingerprint is that of the provider's cluster key and proves the provider to the consumer.
type Token struct {
	Secret string
	// Fingerprint may be empty: then nothing proves the provider.
	Fingerprint string
}

// ParseToken splits the text of a token. A secret may contain dots, so only the text after the last one can be a fingerprint.
func ParseToken(text string) Token {
	text = strings.TrimSpace(text) // files and Secrets written by hand often end with a newline
	if dot := strings.LastIndexByte(text, '.'); dot >= 0 && clusterkey.IsFingerprint(text[dot+1:]) {
		return Token{Secret: text[:dot], Fingerprint: text[dot+1:]}
	}
	return Token{Secret: text}
}

// String returns the text of the token, which is secret.
func (t Token) String() string {
	if t.Fingerprint == "" {
		return t.Secret
	}
	return t.Secret + "." + t.Fingerprint
}

// NewSecret returns a random secret of 256 bits, in hexadecimal.
func NewSecret() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// TokenID identifies a secret without disclosing it. It is 16 hexadecimal digits; empty for the empty secret.
func TokenID(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("liqo.io/auth/token-id/v2\n" + secret))
	return hex.EncodeToString(sum[:8])
}

// tokenProof proves to a holder of the secret that the sender of a message holds it too.
func tokenProof(secret string, message []byte) []byte {
	hash := hmac.New(sha256.New, []byte(secret))
	hash.Write(clusterkey.Message("liqo.io/auth/token-proof/v2", message))
	return hash.Sum(nil)
}

// AcceptedToken is a secret with which clusters may make first contact.
type AcceptedToken struct {
	Secret string `json:"secret"`
	// For is the ID or the name of the only cluster that may use it; empty means any cluster.
	For string `json:"for,omitempty"`
	// Expires is when it becomes invalid; zero means never.
	Expires time.Time `json:"expires,omitzero"`
	// Once means that only the first cluster that uses it may use it.
	Once bool `json:"once,omitempty"`
}

// TokenSource returns the tokens that this cluster accepts.
type TokenSource interface {
	Tokens(ctx context.Context) ([]AcceptedToken, error)
}

// Secrets with tokens, in the install namespace.
const (
	// SharedTokenSecret has the token that any cluster may use, without end, under [SharedTokenKey].
	SharedTokenSecret = "auth-token"
	SharedTokenKey    = "token"
	// IssuedTokensSecret has the tokens that administrators issued one by one: for each an [AcceptedToken] in JSON, under its [TokenID].
	IssuedTokensSecret = "liqo-peer-tokens"
)

// minSecret is the least length of a secret, in bytes. A client on the way sees the proof, and could guess a shorter one.
const minSecret = 16

// SecretTokens reads the tokens from the Secrets auth-token and liqo-peer-tokens. One of them may be missing.
type SecretTokens struct {
	Secrets   corev1client.SecretsGetter
	Namespace string
}

// Tokens reads the Secrets from the API server, so that a changed token counts at once.
func (s SecretTokens) Tokens(ctx context.Context) ([]AcceptedToken, error) {
	var all []AcceptedToken
	shared, err := s.read(ctx, SharedTokenSecret)
	if err != nil {
		return nil, err
	}
	if shared != nil {
		secret := ParseToken(string(shared.Data[SharedTokenKey])).Secret
		switch {
		case secret == "":
			// An empty Secret must neither admit everyone nor look like a wrong token.
			return nil, errNoToken
		case len(secret) < minSecret:
			return nil, fmt.Errorf("the token in Secret %s has %d characters, at least %d are needed; delete it, then `liqoctl upgrade` creates it again",
				SharedTokenSecret, len(secret), minSecret)
		}
		all = append(all, AcceptedToken{Secret: secret})
	}
	issued, err := s.read(ctx, IssuedTokensSecret)
	if err != nil {
		return nil, err
	}
	if issued == nil {
		return all, nil
	}
	for id, text := range issued.Data {
		var one AcceptedToken
		// One that was written by hand and is wrong must not disable the others.
		if json.Unmarshal(text, &one) == nil && len(one.Secret) >= minSecret && TokenID(one.Secret) == id {
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

var errNoToken = errors.New("the Secret " + SharedTokenSecret + " has no key " + SharedTokenKey + "; delete it, then `liqoctl upgrade` creates it again")

// checkToken returns the token that proves a registration; nil if this cluster requires none.
func (s *Server) checkToken(ctx context.Context, r registrationRequest, transcript []byte) (*AcceptedToken, error) {
	if r.TokenID == "" {
		if !s.options.EnableAuthentication {
			return nil, nil
		}
		return nil, refuse(http.StatusUnauthorized, ReasonEmptyDenied,
			"this cluster requires a token, and the request has none; `liqoctl generate peer-command`, run for this cluster, prints it")
	}
	all, err := s.options.Tokens.Tokens(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	for i := range all {
		one := &all[i]
		if TokenID(one.Secret) != r.TokenID || !hmac.Equal(tokenProof(one.Secret, transcript), r.TokenProof) {
			continue
		}
		if !one.Expires.IsZero() && !s.options.Now().Before(one.Expires) {
			return nil, refuse(http.StatusUnauthorized, ReasonDenied, "the token expired; `liqoctl generate peer-command`, run for this cluster, prints another one")
		}
		if one.For != "" && one.For != r.Cluster.ClusterID && one.For != r.Cluster.ClusterName {
			return nil, refuse(http.StatusUnauthorized, ReasonDenied,
				"the token is for another cluster; `liqoctl generate peer-command --for %s`, run for this cluster, prints one for the requesting cluster", r.Cluster.ClusterName)
		}
		return one, nil
	}
	return nil, refuse(http.StatusUnauthorized, ReasonDenied,
		"the token is not one of this cluster; `liqoctl generate peer-command`, run for this cluster, prints it")
}
