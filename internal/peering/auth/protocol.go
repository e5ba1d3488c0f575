// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
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
	maxToken     = 4 << 10
	maxURL       = 2 << 10
	maxChallenge = 256
)

type idsAnswer struct {
	ClusterID    string   `json:"clusterId"`
	ClusterName  string   `json:"clusterName"`
	Version      string   `json:"version"`
	Protocol     Range    `json:"protocol"`
	Capabilities []string `json:"capabilities"`
}

type registrationRequest struct {
	Cluster   discoveryv1alpha1.ClusterIdentity `json:"cluster"`
	AuthURL   string                            `json:"authUrl,omitempty"`
	Token     string                            `json:"destinationClusterToken"`
	PublicKey []byte                            `json:"publicKey"`
	Protocol  Range                             `json:"protocol"`
	DryRun    bool                              `json:"dryRun,omitempty"`
	// Challenge is required if the cluster is registered already.
	Challenge string `json:"challenge,omitempty"`
	Proof     []byte `json:"proof"`
}

type challengeRequest struct {
	ClusterID string `json:"clusterID"`
}

type challengeAnswer struct {
	Challenge string `json:"challenge"`
	ExpiresIn int64  `json:"expiresIn"` // seconds
}

type renewalRequest struct {
	ClusterID string `json:"clusterID"`
	Challenge string `json:"challenge"`
	Signature []byte `json:"signature"`
}

type grantAnswer struct {
	Namespace    string `json:"namespace"`
	Token        string `json:"token"`
	ExpiresIn    int64  `json:"expiresIn"` // seconds
	APIServerURL string `json:"apiServerUrl"`
	APIServerCA  []byte `json:"apiServerCA,omitempty"` // PEM
}

// canonical joins fields so that no two lists of fields give the same bytes. The purpose comes first, so that a signature
// for one purpose is invalid for any other.
func canonical(purpose string, fields ...[]byte) []byte {
	joined := []byte(purpose + "\n")
	for _, field := range fields {
		joined = binary.BigEndian.AppendUint32(joined, uint32(len(field)))
		joined = append(joined, field...)
	}
	return joined
}

// signed returns the bytes that the proof of a registration signs. They include a hash of the token, so that the proof
// is bound to the token and does not disclose it.
func (r registrationRequest) signed() []byte {
	token := sha256.Sum256([]byte(r.Token))
	return canonical("liqo.io/auth/registration/v1",
		[]byte(r.Cluster.ClusterID), []byte(r.Cluster.ClusterName), []byte(r.AuthURL), token[:], r.PublicKey,
		[]byte(strconv.Itoa(r.Protocol.Min)), []byte(strconv.Itoa(r.Protocol.Max)),
		[]byte(strconv.FormatBool(r.DryRun)), []byte(r.Challenge))
}

func (r renewalRequest) signed() []byte {
	return canonical("liqo.io/auth/renewal/v1", []byte(r.ClusterID), []byte(r.Challenge))
}

// parseRegistration makes all checks that need no API server. own is this cluster.
func parseRegistration(body []byte, own discoveryv1alpha1.ClusterIdentity) (r registrationRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
	}
	if err := validClusterID(r.Cluster.ClusterID); err != nil {
		return r, err
	}
	if !validClusterName(r.Cluster) {
		return r, invalid("the cluster's name is not a DNS-1123 label of at most %d characters", maxClusterName)
	}
	if r.Cluster.ClusterID == own.ClusterID {
		return r, invalid("%s is the ID of this cluster, %s: a cluster cannot peer with itself; "+
			"if both were installed with the same ID, uninstall one of them and install it again", own.ClusterID, own.ClusterName)
	}
	if r.Protocol.Min > r.Protocol.Max {
		return r, invalid("the range of protocol versions is empty: its minimum is above its maximum")
	}
	if ours, theirs := ProtocolRange, r.Protocol; theirs.Max < ours.Min || theirs.Min > ours.Max {
		return r, refuse(http.StatusBadRequest, ReasonVersion, "this provider, %s, runs version %s with protocol versions %d to %d, and the requesting cluster has %d to %d; upgrade the older of the two",
			own.ClusterName, version.Version, ours.Min, ours.Max, theirs.Min, theirs.Max)
	}
	if !validAuthURL(r.AuthURL) {
		return r, invalid("authUrl is not the URL of an authentication service: https://HOST, https://HOST:PORT, or empty")
	}
	if len(r.Token) > maxToken || len(r.Challenge) > maxChallenge {
		return r, invalid("the token or the challenge is too long")
	}
	if len(r.PublicKey) != ed25519.PublicKeySize {
		return r, invalid("publicKey is not an Ed25519 key: %d bytes in Base64", ed25519.PublicKeySize)
	}
	if !ed25519.Verify(r.PublicKey, r.signed(), r.Proof) {
		return r, invalid("the proof is not a signature of this request with the private key of publicKey")
	}
	return r, nil
}

func parseChallengeRequest(body []byte) (r challengeRequest, err *Error) {
	if err := decode(body, &r); err != nil {
		return r, err
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
	if len(r.Challenge) > maxChallenge || len(r.Signature) != ed25519.SignatureSize {
		return r, invalid("the challenge is too long, or the signature does not have %d bytes", ed25519.SignatureSize)
	}
	return r, nil
}

// decode reports where a body is wrong and quotes nothing from it, because it may have the token.
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

// maxClusterName is what the name of the tenant namespace leaves for the name of the cluster.
var maxClusterName = validation.DNS1123LabelMaxLength - len(discoveryv1alpha1.ClusterIdentity{}.TenantNamespace())

func validClusterName(c discoveryv1alpha1.ClusterIdentity) bool {
	return len(c.ClusterName) <= maxClusterName && len(validation.IsDNS1123Label(c.ClusterName)) == 0
}

// authURLPattern is that of the field foreignAuthUrl, to which the URL is copied.
var authURLPattern = regexp.MustCompile(`^https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/[a-zA-Z0-9._~/\-]*)?$`)

// validAuthURL accepts the empty URL: a consumer that the provider cannot reach has none.
func validAuthURL(raw string) bool {
	if raw == "" {
		return true
	}
	parsed, err := url.Parse(raw)
	return err == nil && len(raw) <= maxURL && authURLPattern.MatchString(raw) && parsed.Hostname() != ""
}
