// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

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

// TokenProof proves to a holder of the secret that the sender of a message holds it too.
func TokenProof(secret string, message []byte) []byte {
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

// Secrets with tokens, in the install namespace.
const (
	// SharedTokenSecret has the token that any cluster may use, without end, under [SharedTokenKey].
	SharedTokenSecret = "auth-token"
	SharedTokenKey    = "token"
	// IssuedTokensSecret has the tokens that administrators issued one by one: for each an [AcceptedToken] in JSON, under its [TokenID].
	IssuedTokensSecret = "liqo-peer-tokens"
)
