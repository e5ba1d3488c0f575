// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// The keys of the ConfigMap with the pinned keys of a peer. The controller manager writes the namespace when the tenant is ready; this package
// writes the others, once.
const (
	pinPrefix   = "peer-key-"
	spentPrefix = "peer-token-"

	PinClusterID   = "clusterID"
	PinClusterName = "clusterName"
	PinPublicKey   = "publicKey"
	PinClusterKey  = "clusterKey"
	PinAuthURL     = "authURL"
	PinNamespace   = "namespace"
	// PinTokenID is the [TokenID] of the token of first contact, empty without one.
	PinTokenID = "tokenID"
	// PinInBand is "true" for a peer that made first contact through the proxy.
	PinInBand = "inBand"
	// PinRefused is why this cluster does not admit the peer. The controller manager writes it before it deletes the pin.
	PinRefused = "refused"
)

// TokenSecretName is the Secret, in the install namespace, with the pre-shared token of a peer.
func TokenSecretName(clusterID string) string { return "remote-token-" + clusterID }

// PinName is the name of the ConfigMap with the key of a cluster.
func PinName(clusterID string) string { return pinPrefix + clusterID }

// SpentName is the name of the ConfigMap that records the use of a token.
func SpentName(tokenID string) string { return spentPrefix + tokenID }

// Pin is a peer that made first contact. The holder of the private half of Key is authenticated as Cluster.
type Pin struct {
	Cluster discoveryv1alpha1.ClusterIdentity
	Key     ed25519.PublicKey
	// ClusterKey identifies the peer to all clusters, also as a provider.
	ClusterKey ed25519.PublicKey
	// AuthURL is that of the peer's own authentication service, if it has one.
	AuthURL string
	// TokenID is the [TokenID] of the token of first contact, empty without one.
	TokenID string
	// Namespace of the tenant; empty until the tenant is ready.
	Namespace string
	// Refused is why this cluster does not admit the peer; empty if it does.
	Refused string
	// InBand: the peer reaches the API server through the proxy. What is stored is how it made first contact.
	InBand bool

	UID     types.UID
	Version string // of the object, from which a watch starts
}

// ParsePin reads what Pin.ConfigMap wrote.
func ParsePin(object *corev1.ConfigMap) (Pin, error) {
	pin := Pin{
		Cluster:   discoveryv1alpha1.ClusterIdentity{ClusterID: object.Data[PinClusterID], ClusterName: object.Data[PinClusterName]},
		AuthURL:   object.Data[PinAuthURL],
		TokenID:   object.Data[PinTokenID],
		Namespace: object.Data[PinNamespace],
		Refused:   object.Data[PinRefused],
		InBand:    object.Data[PinInBand] == "true",
		UID:       object.UID,
		Version:   object.ResourceVersion,
	}
	key, err := base64.StdEncoding.DecodeString(object.Data[PinPublicKey])
	clusterKey, clusterKeyErr := base64.StdEncoding.DecodeString(object.Data[PinClusterKey])
	switch {
	case CheckClusterID(pin.Cluster.ClusterID) != nil || object.Name != PinName(pin.Cluster.ClusterID):
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is not the ID in its name", object.Namespace, object.Name, PinClusterID)
	case !ValidClusterName(pin.Cluster):
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is not the name of a cluster", object.Namespace, object.Name, PinClusterName)
	case err != nil || len(key) != ed25519.PublicKeySize:
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is not an Ed25519 key in Base64", object.Namespace, object.Name, PinPublicKey)
	case clusterKeyErr != nil || len(clusterKey) != ed25519.PublicKeySize:
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is not an Ed25519 key in Base64", object.Namespace, object.Name, PinClusterKey)
	case len(pin.TokenID) > MaxTokenID:
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is too long", object.Namespace, object.Name, PinTokenID)
	case !discoveryv1alpha1.ValidAuthURL(pin.AuthURL):
		return Pin{}, fmt.Errorf("ConfigMap %s/%s: %s is not the URL of an authentication service", object.Namespace, object.Name, PinAuthURL)
	}
	pin.Key, pin.ClusterKey = key, clusterKey
	return pin, nil
}

// ConfigMap is how the pin is stored.
func (p Pin) ConfigMap(namespace string) *corev1.ConfigMap {
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:      PinName(p.Cluster.ClusterID),
			Namespace: namespace,
			Labels:    objectLabels(labels.PinnedKey, "peer-key", p.Cluster.ClusterID),
		},
		Data: map[string]string{
			PinClusterID:   p.Cluster.ClusterID,
			PinClusterName: p.Cluster.ClusterName,
			PinPublicKey:   base64.StdEncoding.EncodeToString(p.Key),
			PinClusterKey:  base64.StdEncoding.EncodeToString(p.ClusterKey),
			PinAuthURL:     p.AuthURL,
			PinTokenID:     p.TokenID,
		},
	}
	if p.InBand {
		made.Data[PinInBand] = "true"
	}
	return made
}

// objectLabels are the labels of an object that this service creates for a cluster.
func objectLabels(kind, name, clusterID string) map[string]string {
	return map[string]string{
		kind: "true", labels.ClusterID: clusterID,
		labels.AppName: name, labels.AppComponent: "auth", labels.AppPartOf: labels.PartOf, labels.AppManagedBy: "liqo-auth",
	}
}

// SpentToken records which cluster used a token that only one may use. Its creation is atomic, and needs no right to change anything.
func SpentToken(namespace, tokenID, clusterID string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: SpentName(tokenID), Namespace: namespace,
			Labels: objectLabels(labels.SpentToken, "peer-token", clusterID),
		},
		Data: map[string]string{PinClusterID: clusterID},
	}
}
