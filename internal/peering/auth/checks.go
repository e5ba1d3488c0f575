// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/version"
)

func (q Question) check() *Error {
	switch {
	case !clusterkey.IsFingerprint(q.Provider):
		return Invalid("question.provider is not the fingerprint of a key")
	case q.Challenge == "" || len(q.Challenge) > MaxChallenge:
		return ChallengeNeeded
	case len(q.Nonce) != NonceSize || len(q.SealTo) != SealKeySize:
		return Invalid("question.nonce and question.sealTo must have %d and %d bytes", NonceSize, SealKeySize)
	}
	return nil
}

// ParseRegistration makes all checks that need no API server and no secret, signatures excepted. own is this cluster.
func ParseRegistration(body []byte, own discoveryv1alpha1.ClusterIdentity) (r RegistrationRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if err := CheckClusterID(r.Cluster.ClusterID); err != nil {
		return r, err
	}
	if !ValidClusterName(r.Cluster) {
		return r, Invalid("the cluster's name is not a DNS-1123 label of at most %d characters", validation.DNS1123LabelMaxLength)
	}
	if r.Cluster.ClusterID == own.ClusterID {
		return r, Invalid("%s is the ID of this cluster, %s: a cluster cannot peer with itself; "+
			"if both were installed with the same ID, uninstall one of them and install it again", own.ClusterID, own.ClusterName)
	}
	if r.Protocol.Min > r.Protocol.Max {
		return r, Invalid("the range of protocol versions is empty: its minimum is above its maximum")
	}
	if ours, theirs := ProtocolRange, r.Protocol; theirs.Max < ours.Min || theirs.Min > ours.Max {
		return r, Refuse(http.StatusBadRequest, ReasonVersion,
			"this provider, %s, runs version %s with protocol %s, and the requesting cluster has %s; upgrade the older of the two",
			own.ClusterName, version.Version, ours, theirs)
	}
	if !discoveryv1alpha1.ValidAuthURL(r.AuthURL) {
		return r, Invalid("authUrl is not the URL of an authentication service: https://HOST, https://HOST:PORT, or empty")
	}
	if err := r.Question.check(); err != nil {
		return r, err
	}
	if len(r.PublicKey) != ed25519.PublicKeySize || len(r.ClusterKey) != ed25519.PublicKeySize {
		return r, Invalid("publicKey and clusterKey are not Ed25519 keys: %d bytes in Base64", ed25519.PublicKeySize)
	}
	if len(r.TokenID) > MaxTokenID || len(r.TokenProof) > sha256.Size || len(r.Proof) != ed25519.SignatureSize || len(r.ClusterProof) != ed25519.SignatureSize {
		return r, Invalid("tokenID, tokenProof, proof or clusterProof has a wrong length")
	}
	if len(r.Replaces) > maxProofs || slices.ContainsFunc(r.Replaces, func(proof []byte) bool { return len(proof) != ed25519.SignatureSize }) {
		return r, Invalid("replaces has more than %d signatures, or one that does not have %d bytes", maxProofs, ed25519.SignatureSize)
	}
	return r, nil
}

// Proven checks the signatures of a registration over its transcript.
func (r RegistrationRequest) Proven(transcript []byte) *Error {
	if !ed25519.Verify(r.PublicKey, transcript, r.Proof) || !ed25519.Verify(r.ClusterKey, transcript, r.ClusterProof) {
		return Invalid("proof and clusterProof are not signatures of this request with the private keys of publicKey and clusterKey")
	}
	return nil
}

// ParseChallengeRequest makes all checks that need no key.
func ParseChallengeRequest(body []byte) (r ChallengeRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if r.Nonce == nil {
		return r, Refuse(http.StatusBadRequest, ReasonVersion,
			"the request is one of an older protocol; this provider runs version %s with protocol %s: upgrade Liqo in the requesting cluster",
			version.Version, ProtocolRange)
	}
	if len(r.Nonce) != NonceSize || r.Provider != "" && !clusterkey.IsFingerprint(r.Provider) {
		return r, Invalid("nonce must have %d bytes, and provider must be the fingerprint of a key, or empty", NonceSize)
	}
	return r, CheckClusterID(r.ClusterID)
}

// ParseRenewal makes all checks that need no key.
func ParseRenewal(body []byte) (r RenewalRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if err := CheckClusterID(r.ClusterID); err != nil {
		return r, err
	}
	if err := r.Question.check(); err != nil {
		return r, err
	}
	if len(r.Signature) != ed25519.SignatureSize {
		return r, Invalid("the signature does not have %d bytes", ed25519.SignatureSize)
	}
	return r, nil
}

// decode reports where a body is wrong and quotes nothing from it, because it may have secrets.
func decode(body []byte, into any) *Error {
	err := json.Unmarshal(body, into)
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return Invalid("the body is not JSON, near byte %d", syntax.Offset)
	}
	if err != nil {
		return Invalid("the body is not the JSON expected: one object, keys and signatures in Base64")
	}
	return nil
}

var clusterIDPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// CheckClusterID refuses the ID of a cluster that is not a UUID in lower case.
func CheckClusterID(id string) *Error {
	if clusterIDPattern.MatchString(id) {
		return nil
	}
	return Invalid("the cluster's ID is not a UUID in lower case")
}

// ValidClusterName reports whether the name of a cluster is a DNS-1123 label.
func ValidClusterName(c discoveryv1alpha1.ClusterIdentity) bool {
	return len(validation.IsDNS1123Label(c.ClusterName)) == 0
}

// ParseAddress returns the URL of an API server from a URL, HOST or HOST:PORT.
func ParseAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", errors.New("the address of the API server must look like https://HOST:PORT")
	}
	return strings.TrimSuffix(parsed.String(), "/"), nil
}
