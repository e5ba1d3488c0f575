// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"strconv"
	"time"

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
	PathIDs       = "/ids"
	PathIdentity  = "/identity"
	PathChallenge = "/identity/challenge"
	PathRenewal   = "/identity/renewal"
)

// Sizes in bytes.
const (
	MaxRequest   = 64 << 10
	MaxURL       = 2 << 10
	MaxChallenge = 256
	MaxTokenID   = 16
	NonceSize    = 32
)

// IDsAnswer is the identity of a cluster.
type IDsAnswer struct {
	ClusterID    string   `json:"clusterId"`
	ClusterName  string   `json:"clusterName"`
	Version      string   `json:"version"`
	Protocol     Range    `json:"protocol"`
	Capabilities []string `json:"capabilities"`
}

// RegistrationRequest is first contact. The challenge is that of the provider; the nonce, that of the consumer, makes the answer one to this request.
type RegistrationRequest struct {
	Cluster discoveryv1alpha1.ClusterIdentity `json:"cluster"`
	AuthURL string                            `json:"authUrl,omitempty"`
	// PublicKey is the consumer's key for this provider, ClusterKey the one that identifies it to all its peers.
	PublicKey  []byte `json:"publicKey"`
	ClusterKey []byte `json:"clusterKey"`
	Protocol   Range  `json:"protocol"`
	DryRun     bool   `json:"dryRun,omitempty"`
	// Ways asks where the gateways can be reached, in a dry run. It is not signed: providers of earlier versions do not know it.
	Ways     bool     `json:"ways,omitempty"`
	Question Question `json:"question"`
	// TokenID is the [TokenID] of the secret with which TokenProof is made; empty without a token.
	TokenID    string `json:"tokenID,omitempty"`
	TokenProof []byte `json:"tokenProof,omitempty"`
	// Replaces are the proofs of a [Replacement], if the consumer has replaced its keys.
	Replaces [][]byte `json:"replaces,omitempty"`
	// Proof and ClusterProof are signatures with the two keys.
	Proof        []byte `json:"proof"`
	ClusterProof []byte `json:"clusterProof"`
}

// Question is what a signed answer refers to.
type Question struct {
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

// ChallengeRequest also learns the provider's key: Provider is the fingerprint of the one that the consumer knows, if any.
type ChallengeRequest struct {
	ClusterID string `json:"clusterID"`
	Provider  string `json:"provider,omitempty"`
	Nonce     []byte `json:"nonce"`
	// Proof is a signature with the key of a consumer that is registered, made at Time, in seconds. It only keeps the consumer from waiting for others.
	// Providers of earlier versions do not know it.
	Time  int64  `json:"time,omitempty"`
	Proof []byte `json:"proof,omitempty"`
}

// ChallengeAnswer is a value to sign.
type ChallengeAnswer struct {
	Challenge string `json:"challenge"`
	ExpiresIn int64  `json:"expiresIn"` // seconds
	// ProviderKey is the one asked for, or the current one. Signature proves that the service has it.
	ProviderKey []byte `json:"providerKey"`
	Signature   []byte `json:"signature"`
}

// Signed returns the bytes that the provider signs.
func (a ChallengeAnswer) Signed(r ChallengeRequest) []byte {
	return clusterkey.Message("liqo.io/auth/challenge/v2", []byte(r.ClusterID), r.Nonce, []byte(a.Challenge))
}

// RenewalRequest asks for another token.
type RenewalRequest struct {
	ClusterID string   `json:"clusterID"`
	Question  Question `json:"question"`
	Signature []byte   `json:"signature"`
}

// GrantAnswer is signed with the key that the question asked for. That of a dry run has neither namespace nor token.
type GrantAnswer struct {
	Namespace    string `json:"namespace,omitempty"`
	SealedToken  []byte `json:"sealedToken,omitempty"`
	ExpiresIn    int64  `json:"expiresIn,omitempty"` // seconds
	APIServerURL string `json:"apiServerUrl,omitempty"`
	APIServerCA  []byte `json:"apiServerCA,omitempty"` // PEM
	// Ways is the answer to a dry run that asks for them; see package ways.
	Ways      []byte `json:"ways,omitempty"`
	Signature []byte `json:"signature"`
	// Successor is the provider's current key, if the question asked for the previous one.
	Successor *Successor `json:"successor,omitempty"`
}

// Successor is a key that replaces another one, signed by that.
type Successor struct {
	Key       []byte `json:"key"`
	Signature []byte `json:"signature"`
}

// Signed returns the bytes that the replaced key signs.
func (s Successor) Signed() []byte { return clusterkey.Message("liqo.io/auth/successor/v2", s.Key) }

// AnswerTo are the two clusters and the question of an answer.
type AnswerTo struct {
	Provider, Consumer string // cluster IDs
	PublicKey          []byte // the consumer's, for this provider
	Question           Question
}

// Signed returns the bytes that the provider signs. They bind the answer to the consumer, its key, its question, and all of the contents.
func (a GrantAnswer) Signed(to AnswerTo) []byte {
	ca, token := sha256.Sum256(a.APIServerCA), sha256.Sum256(a.SealedToken)
	fields := [][]byte{
		[]byte(to.Provider), []byte(to.Consumer), to.PublicKey, []byte(to.Question.Challenge), to.Question.Nonce, to.Question.SealTo,
		[]byte(a.Namespace), []byte(a.APIServerURL), ca[:], token[:], []byte(strconv.FormatInt(a.ExpiresIn, 10)),
	}
	if len(a.Ways) > 0 { // only who asks gets them
		fields = append(fields, a.Ways)
	}
	return clusterkey.Message("liqo.io/auth/grant/v2", fields...)
}

// SealInfo binds a sealed token to the question.
func (to AnswerTo) SealInfo() []byte {
	return clusterkey.Message("liqo.io/auth/sealed-token/v2", []byte(to.Provider), []byte(to.Consumer), to.Question.Nonce)
}

// Signed returns the bytes that both signatures and the proof of the token cover.
func (r RegistrationRequest) Signed() []byte {
	return clusterkey.Message("liqo.io/auth/registration/v2", append(r.Question.fields(),
		[]byte(r.Cluster.ClusterID), []byte(r.Cluster.ClusterName), []byte(r.AuthURL), r.PublicKey, r.ClusterKey,
		[]byte(strconv.Itoa(r.Protocol.Min)), []byte(strconv.Itoa(r.Protocol.Max)), []byte(strconv.FormatBool(r.DryRun)), []byte(r.TokenID))...)
}

// Signed returns the bytes that the consumer signs.
func (r RenewalRequest) Signed() []byte {
	return clusterkey.Message("liqo.io/auth/renewal/v2", append(r.Question.fields(), []byte(r.ClusterID))...)
}

func (q Question) fields() [][]byte {
	all := [][]byte{[]byte(q.Provider), []byte(q.Challenge), q.Nonce, q.SealTo}
	if q.InBand {
		all = append(all, []byte("in-band"))
	}
	return all
}

// proofAge is how far the clock of a cluster that proves itself may differ. Its address counts otherwise.
const proofAge = 5 * time.Minute

// From is the cluster that sends the request, as it states.
func (r ChallengeRequest) From() string { return r.ClusterID }

// From is the cluster that sends the request, as it states.
func (r RenewalRequest) From() string { return r.ClusterID }

// Prove signs the request for a challenge with the pinned key of the consumer.
func (r *ChallengeRequest) Prove(ours ed25519.PrivateKey, now time.Time) {
	r.Time = now.Unix()
	r.Proof = ed25519.Sign(ours, r.signed())
}

// Proves reports whether the request is signed with a key, and recent. Who repeats one that is not his gains what its sender may ask for.
func (r ChallengeRequest) Proves(key ed25519.PublicKey, now time.Time) bool {
	return now.Sub(time.Unix(r.Time, 0)).Abs() <= proofAge && ed25519.Verify(key, r.signed(), r.Proof)
}

// Proves reports whether the renewal is signed with a key. Its challenge makes it recent.
func (r RenewalRequest) Proves(key ed25519.PublicKey, _ time.Time) bool {
	return ed25519.Verify(key, r.Signed(), r.Signature)
}

func (r ChallengeRequest) signed() []byte {
	return clusterkey.Message("liqo.io/auth/known/v1", []byte(r.ClusterID), []byte(r.Provider), r.Nonce, []byte(strconv.FormatInt(r.Time, 10)))
}

// TenantDeadline is how long first contact waits for the tenant.
const TenantDeadline = 10 * time.Second

// Grant is what a peer gets.
type Grant struct {
	// Namespace of the tenant in the provider.
	Namespace string
	// Token of the peer's ServiceAccount, and how long from now it is valid.
	Token    string
	Lifetime time.Duration
	// APIServerURL and APIServerCA (PEM) are for the API server that accepts the token. Without a CA, a public authority
	// signed its certificate.
	APIServerURL string
	APIServerCA  []byte
	// Ways to the provider's gateways, of a dry run; see package ways.
	Ways []byte
	// ProviderKey identifies the provider from now on. The client sets it.
	ProviderKey ed25519.PublicKey
}
