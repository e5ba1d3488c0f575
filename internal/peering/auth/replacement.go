// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
)

// Replacement is a consumer's statement to one provider that it has new keys. It counts only with signatures of both keys that the provider has pinned,
// so that neither a token nor one stolen key suffices to take a peering over.
type Replacement struct {
	// Consumer and Provider are cluster IDs.
	Consumer, Provider string
	// Key and ClusterKey are the new keys, as in [Pin].
	Key, ClusterKey ed25519.PublicKey
	// Proofs are signatures of the statement with the keys that the provider may have pinned.
	Proofs [][]byte
}

// maxProofs is the number of keys that a cluster may have: two, each with its predecessor.
const maxProofs = 4

const (
	replacementPrefix = "peer-key-replacement-"
	// PinReplacement is the value of the label [labels.PinnedKey] of a replacement.
	PinReplacement = "replacement"

	pinProofs   = "proofs"
	pinProvider = "provider"
)

// ReplacementName is the name of the ConfigMap with the replacement of a cluster's keys.
func ReplacementName(clusterID string) string { return replacementPrefix + clusterID }

func (r Replacement) signed() []byte {
	return clusterkey.Message("liqo.io/auth/replacement/v2", []byte(r.Provider), []byte(r.Consumer), r.Key, r.ClusterKey)
}

// Sign adds a proof for each key.
func (r *Replacement) Sign(keys ...ed25519.PrivateKey) {
	for _, key := range keys {
		r.Proofs = append(r.Proofs, ed25519.Sign(key, r.signed()))
	}
}

// Done reports whether a pin has the new keys.
func (r Replacement) Done(pin Pin) bool {
	return pin.Key.Equal(r.Key) && pin.ClusterKey.Equal(r.ClusterKey)
}

// ProvenTo reports whether the holder of both keys of a pin made the statement, to the cluster with this ID.
func (r Replacement) ProvenTo(provider string, pin Pin) bool {
	message := r.signed()
	by := func(key ed25519.PublicKey) bool {
		return len(key) == ed25519.PublicKeySize && slices.ContainsFunc(r.Proofs, func(proof []byte) bool { return ed25519.Verify(key, message, proof) })
	}
	return r.Provider == provider && r.Consumer == pin.Cluster.ClusterID && len(r.Proofs) <= maxProofs && by(pin.Key) && by(pin.ClusterKey)
}

// ParseReplacement reads what Replacement.ConfigMap wrote. The proofs are still to be checked.
func ParseReplacement(object *corev1.ConfigMap) (Replacement, error) {
	r := Replacement{Consumer: object.Data[PinClusterID], Provider: object.Data[pinProvider]}
	var err error
	decode := func(name, text string, size int) []byte {
		decoded, decodeErr := base64.StdEncoding.DecodeString(text)
		if decodeErr != nil || len(decoded) != size {
			err = fmt.Errorf("ConfigMap %s/%s: %s does not have %d bytes in Base64", object.Namespace, object.Name, name, size)
		}
		return decoded
	}
	r.Key = decode(PinPublicKey, object.Data[PinPublicKey], ed25519.PublicKeySize)
	r.ClusterKey = decode(PinClusterKey, object.Data[PinClusterKey], ed25519.PublicKeySize)
	for proof := range strings.FieldsSeq(object.Data[pinProofs]) {
		if r.Proofs = append(r.Proofs, decode(pinProofs, proof, ed25519.SignatureSize)); len(r.Proofs) > maxProofs {
			return r, fmt.Errorf("ConfigMap %s/%s: more than %d proofs", object.Namespace, object.Name, maxProofs)
		}
	}
	if object.Name != ReplacementName(r.Consumer) {
		err = fmt.Errorf("ConfigMap %s/%s: %s is not the ID in its name", object.Namespace, object.Name, PinClusterID)
	}
	return r, err
}

// ConfigMap is how the replacement is handed to the controller manager.
func (r Replacement) ConfigMap(namespace string) *corev1.ConfigMap {
	proofs := make([]string, len(r.Proofs))
	for i := range r.Proofs {
		proofs[i] = base64.StdEncoding.EncodeToString(r.Proofs[i])
	}
	own := objectLabels(labels.PinnedKey, "peer-key", r.Consumer)
	own[labels.PinnedKey] = PinReplacement
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ReplacementName(r.Consumer), Namespace: namespace, Labels: own},
		Data:       map[string]string{PinClusterID: r.Consumer, pinProvider: r.Provider, pinProofs: strings.Join(proofs, " ")},
	}
	r.Into(object)
	return object
}

// Into writes the new keys into the ConfigMap of a pin.
func (r Replacement) Into(object *corev1.ConfigMap) {
	object.Data[PinPublicKey] = base64.StdEncoding.EncodeToString(r.Key)
	object.Data[PinClusterKey] = base64.StdEncoding.EncodeToString(r.ClusterKey)
}

// Replacement returns the statement of a registration to the provider with this cluster ID. It may have no proofs.
func (r RegistrationRequest) Replacement(provider string) Replacement {
	return Replacement{Consumer: r.Cluster.ClusterID, Provider: provider, Key: r.PublicKey, ClusterKey: r.ClusterKey, Proofs: r.Replaces}
}
