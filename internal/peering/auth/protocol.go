// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/version"
)

// Range of protocol versions, both ends included.
type Range = version.Range

// ProtocolRange is the range of protocol versions of this build, as server and as client.
var ProtocolRange = version.Protocol()

// The paths of the service.
const (
	pathIDs       = "/ids"
	pathIdentity  = "/identity"
	pathChallenge = "/identity/challenge"
	pathRenewal   = "/identity/renewal"
)

const (
	maxRequest   = 64 << 10
	maxURL       = 2 << 10
	maxChallenge = 256
	maxTokenID   = 16
	nonceSize    = 32
)

type idsAnswer struct {
	ClusterID    string   `json:"clusterId"`
	ClusterName  string   `json:"clusterName"`
	Version      string   `json:"version"`
	Protocol     Range    `json:"protocol"`
	Capabilities []string `json:"capabilities"`
}

// registrationRequest is first contact. The challenge is that of the provider; the nonce, that of the consumer, makes the answer one to this request.
type registrationRequest struct {
	Cluster discoveryv1alpha1.ClusterIdentity `json:"cluster"`
	AuthURL string                            `json:"authUrl,omitempty"`
	// PublicKey is the consumer's key for this provider, ClusterKey the one that identifies it to all its peers.
	PublicKey  []byte `json:"publicKey"`
	ClusterKey []byte `json:"clusterKey"`
	Protocol   Range  `json:"protocol"`
	DryRun     bool   `json:"dryRun,omitempty"`
	// Ways asks where the gateways can be reached, in a dry run. It is not signed: providers of earlier versions do not know it.
	Ways     bool     `json:"ways,omitempty"`
	Question question `json:"question"`
	// TokenID is the [TokenID] of the secret with which TokenProof is made; empty without a token.
	TokenID    string `json:"tokenID,omitempty"`
	TokenProof []byte `json:"tokenProof,omitempty"`
	// Replaces are the proofs of a [Replacement], if the consumer has replaced its keys.
	Replaces [][]byte `json:"replaces,omitempty"`
	// Proof and ClusterProof are signatures with the two keys.
	Proof        []byte `json:"proof"`
	ClusterProof []byte `json:"clusterProof"`
}

// question is what a signed answer refers to.
type question struct {
	// Provider is the fingerprint of the key with which the provider is to sign.
	Provider string `json:"provider"`
	// Challenge is the provider's, Nonce the consumer's.
	Challenge string `json:"challenge"`
	Nonce     []byte `json:"nonce"`
	// SealTo is the X25519 key to which the provider seals the token.
	SealTo []byte `json:"sealTo"`
	// InBand: the consumer reaches the API server through the provider's proxy, so the grant is to have its URL inside the provider.
	InBand bool `json:"inBand,omitempty"`
}

// challengeRequest also learns the provider's key: Provider is the fingerprint of the one that the consumer knows, if any.
type challengeRequest struct {
	ClusterID string `json:"clusterID"`
	Provider  string `json:"provider,omitempty"`
	Nonce     []byte `json:"nonce"`
	// Proof is a signature with the key of a consumer that is registered, made at Time, in seconds. It only keeps the consumer from waiting for others.
	// Providers of earlier versions do not know it.
	Time  int64  `json:"time,omitempty"`
	Proof []byte `json:"proof,omitempty"`
}

type challengeAnswer struct {
	Challenge string `json:"challenge"`
	ExpiresIn int64  `json:"expiresIn"` // seconds
	// ProviderKey is the one asked for, or the current one. Signature proves that the service has it.
	ProviderKey []byte `json:"providerKey"`
	Signature   []byte `json:"signature"`
}

func (a challengeAnswer) signed(r challengeRequest) []byte {
	return clusterkey.Message("liqo.io/auth/challenge/v2", []byte(r.ClusterID), r.Nonce, []byte(a.Challenge))
}

type renewalRequest struct {
	ClusterID string   `json:"clusterID"`
	Question  question `json:"question"`
	Signature []byte   `json:"signature"`
}

// grantAnswer is signed with the key that the question asked for. That of a dry run has neither namespace nor token.
type grantAnswer struct {
	Namespace    string `json:"namespace,omitempty"`
	SealedToken  []byte `json:"sealedToken,omitempty"`
	ExpiresIn    int64  `json:"expiresIn,omitempty"` // seconds
	APIServerURL string `json:"apiServerUrl,omitempty"`
	APIServerCA  []byte `json:"apiServerCA,omitempty"` // PEM
	// Ways is the answer to a dry run that asks for them; see package ways.
	Ways      []byte `json:"ways,omitempty"`
	Signature []byte `json:"signature"`
	// Successor is the provider's current key, if the question asked for the previous one.
	Successor *successor `json:"successor,omitempty"`
}

// successor is a key that replaces another one, signed by that.
type successor struct {
	Key       []byte `json:"key"`
	Signature []byte `json:"signature"`
}

func (s successor) signed() []byte { return clusterkey.Message("liqo.io/auth/successor/v2", s.Key) }

// answerTo are the two clusters and the question of an answer.
type answerTo struct {
	provider, consumer string // cluster IDs
	publicKey          []byte // the consumer's, for this provider
	question           question
}

// signed returns the bytes that the provider signs. They bind the answer to the consumer, its key, its question, and all of the contents.
func (a grantAnswer) signed(to answerTo) []byte {
	ca, token := sha256.Sum256(a.APIServerCA), sha256.Sum256(a.SealedToken)
	fields := [][]byte{
		[]byte(to.provider), []byte(to.consumer), to.publicKey, []byte(to.question.Challenge), to.question.Nonce, to.question.SealTo,
		[]byte(a.Namespace), []byte(a.APIServerURL), ca[:], token[:], []byte(strconv.FormatInt(a.ExpiresIn, 10)),
	}
	if len(a.Ways) > 0 { // only who asks gets them
		fields = append(fields, a.Ways)
	}
	return clusterkey.Message("liqo.io/auth/grant/v2", fields...)
}

// sealInfo binds a sealed token to the question.
func (to answerTo) sealInfo() []byte {
	return clusterkey.Message("liqo.io/auth/sealed-token/v2", []byte(to.provider), []byte(to.consumer), to.question.Nonce)
}

// signed returns the bytes that both signatures and the proof of the token cover.
func (r registrationRequest) signed() []byte {
	return clusterkey.Message("liqo.io/auth/registration/v2", append(r.Question.fields(),
		[]byte(r.Cluster.ClusterID), []byte(r.Cluster.ClusterName), []byte(r.AuthURL), r.PublicKey, r.ClusterKey,
		[]byte(strconv.Itoa(r.Protocol.Min)), []byte(strconv.Itoa(r.Protocol.Max)), []byte(strconv.FormatBool(r.DryRun)), []byte(r.TokenID))...)
}

func (r renewalRequest) signed() []byte {
	return clusterkey.Message("liqo.io/auth/renewal/v2", append(r.Question.fields(), []byte(r.ClusterID))...)
}

func (q question) fields() [][]byte {
	all := [][]byte{[]byte(q.Provider), []byte(q.Challenge), q.Nonce, q.SealTo}
	if q.InBand {
		all = append(all, []byte("in-band"))
	}
	return all
}

func (q question) check() *Error {
	switch {
	case !clusterkey.IsFingerprint(q.Provider):
		return invalid("question.provider is not the fingerprint of a key")
	case q.Challenge == "" || len(q.Challenge) > maxChallenge:
		return errChallenge
	case len(q.Nonce) != nonceSize || len(q.SealTo) != sealKeySize:
		return invalid("question.nonce and question.sealTo must have %d and %d bytes", nonceSize, sealKeySize)
	}
	return nil
}

// parseRegistration makes all checks that need no API server and no secret, signatures excepted. own is this cluster.
func parseRegistration(body []byte, own discoveryv1alpha1.ClusterIdentity) (r registrationRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if err := validClusterID(r.Cluster.ClusterID); err != nil {
		return r, err
	}
	if !validClusterName(r.Cluster) {
		return r, invalid("the cluster's name is not a DNS-1123 label of at most %d characters", validation.DNS1123LabelMaxLength)
	}
	if r.Cluster.ClusterID == own.ClusterID {
		return r, invalid("%s is the ID of this cluster, %s: a cluster cannot peer with itself; "+
			"if both were installed with the same ID, uninstall one of them and install it again", own.ClusterID, own.ClusterName)
	}
	if r.Protocol.Min > r.Protocol.Max {
		return r, invalid("the range of protocol versions is empty: its minimum is above its maximum")
	}
	if ours, theirs := ProtocolRange, r.Protocol; theirs.Max < ours.Min || theirs.Min > ours.Max {
		return r, refuse(http.StatusBadRequest, ReasonVersion, "this provider, %s, runs version %s with protocol %s, and the requesting cluster has %s; upgrade the older of the two",
			own.ClusterName, version.Version, ours, theirs)
	}
	if !discoveryv1alpha1.ValidAuthURL(r.AuthURL) {
		return r, invalid("authUrl is not the URL of an authentication service: https://HOST, https://HOST:PORT, or empty")
	}
	if err := r.Question.check(); err != nil {
		return r, err
	}
	if len(r.PublicKey) != ed25519.PublicKeySize || len(r.ClusterKey) != ed25519.PublicKeySize {
		return r, invalid("publicKey and clusterKey are not Ed25519 keys: %d bytes in Base64", ed25519.PublicKeySize)
	}
	if len(r.TokenID) > maxTokenID || len(r.TokenProof) > sha256.Size || len(r.Proof) != ed25519.SignatureSize || len(r.ClusterProof) != ed25519.SignatureSize {
		return r, invalid("tokenID, tokenProof, proof or clusterProof has a wrong length")
	}
	if len(r.Replaces) > maxProofs || slices.ContainsFunc(r.Replaces, func(proof []byte) bool { return len(proof) != ed25519.SignatureSize }) {
		return r, invalid("replaces has more than %d signatures, or one that does not have %d bytes", maxProofs, ed25519.SignatureSize)
	}
	return r, nil
}

// proven checks the signatures of a registration over its transcript.
func (r registrationRequest) proven(transcript []byte) *Error {
	if !ed25519.Verify(r.PublicKey, transcript, r.Proof) || !ed25519.Verify(r.ClusterKey, transcript, r.ClusterProof) {
		return invalid("proof and clusterProof are not signatures of this request with the private keys of publicKey and clusterKey")
	}
	return nil
}

func parseChallengeRequest(body []byte) (r challengeRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if r.Nonce == nil {
		return r, refuse(http.StatusBadRequest, ReasonVersion,
			"the request is one of an older protocol; this provider runs version %s with protocol %s: upgrade Liqo in the requesting cluster", version.Version, ProtocolRange)
	}
	if len(r.Nonce) != nonceSize || r.Provider != "" && !clusterkey.IsFingerprint(r.Provider) {
		return r, invalid("nonce must have %d bytes, and provider must be the fingerprint of a key, or empty", nonceSize)
	}
	return r, validClusterID(r.ClusterID)
}

func parseRenewal(body []byte) (r renewalRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if err := validClusterID(r.ClusterID); err != nil {
		return r, err
	}
	if err := r.Question.check(); err != nil {
		return r, err
	}
	if len(r.Signature) != ed25519.SignatureSize {
		return r, invalid("the signature does not have %d bytes", ed25519.SignatureSize)
	}
	return r, nil
}

// call is a request whose body was decoded.
type call struct {
	proof  proof                                                          // the request, if one of its kind can prove who has sent it
	answer func(ctx context.Context) (peer string, answer any, err error) // peer is the requesting cluster, if known
}

// reading decodes the body of a request once, for the question who has sent it and for the answer.
func reading[R any](parse func(body []byte) (R, *Error), answer func(context.Context, R) (string, any, error)) func([]byte) (*call, error) {
	return func(body []byte) (*call, error) {
		request, refusal := parse(body)
		if refusal != nil {
			return nil, refusal
		}
		proves, _ := any(request).(proof)
		return &call{proves, func(ctx context.Context) (string, any, error) { return answer(ctx, request) }}, nil
	}
}

// decode reports where a body is wrong and quotes nothing from it, because it may have secrets.
func decode(body []byte, into any) *Error {
	err := json.Unmarshal(body, into)
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return invalid("the body is not JSON, near byte %d", syntax.Offset)
	}
	if err != nil {
		return invalid("the body is not the JSON expected: one object, keys and signatures in Base64")
	}
	return nil
}

var clusterIDPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func validClusterID(id string) *Error {
	if clusterIDPattern.MatchString(id) {
		return nil
	}
	return invalid("the cluster's ID is not a UUID in lower case")
}

func validClusterName(c discoveryv1alpha1.ClusterIdentity) bool {
	return len(validation.IsDNS1123Label(c.ClusterName)) == 0
}
