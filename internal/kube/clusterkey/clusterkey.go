// SPDX-License-Identifier: Apache-2.0

// Package clusterkey has the key that identifies a cluster to all its peers, for as long as the cluster exists: an Ed25519 key in a Secret of the
// install namespace. Peers know it by its fingerprint.
//
// It must not know what is signed. The proof is clusterkey_test.go.
package clusterkey

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Secret is the name of the Secret, in the install namespace. The controller manager creates it.
const Secret = "liqo-cluster-key"

const (
	current  = "key"
	previous = "previous"
)

// Keys are the keys that identify a cluster to its peers.
type Keys struct {
	Current ed25519.PrivateKey
	// Previous is what Current replaced, until all peers know Current; nil if there is none.
	Previous ed25519.PrivateKey
}

func Generate() (Keys, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Keys{}, fmt.Errorf("make a key for this cluster: %w", err)
	}
	return Keys{Current: private}, nil
}

// Replace returns a new key, with the present one as its predecessor.
func (k Keys) Replace() (Keys, error) {
	next, err := Generate()
	next.Previous = k.Current
	return next, err
}

// Parse reads the keys of a Secret: the seeds of Ed25519 keys, 32 bytes each.
func Parse(secret *corev1.Secret) (Keys, error) {
	var keys Keys
	for name, into := range map[string]*ed25519.PrivateKey{current: &keys.Current, previous: &keys.Previous} {
		seed, given := secret.Data[name]
		if !given && name == previous {
			continue
		}
		if len(seed) != ed25519.SeedSize {
			return Keys{}, fmt.Errorf("the Secret %s/%s: key %s has %d bytes, want %d; delete the Secret to have another one created, then peer again with all peers",
				secret.Namespace, secret.Name, name, len(seed), ed25519.SeedSize)
		}
		*into = ed25519.NewKeyFromSeed(seed)
	}
	return keys, nil
}

func (k Keys) Data() map[string][]byte {
	data := map[string][]byte{current: k.Current.Seed()}
	if k.Previous != nil {
		data[previous] = k.Previous.Seed()
	}
	return data
}

func (k Keys) Fingerprint() string { return Fingerprint(Public(k.Current)) }

// Find returns the key with a fingerprint, and whether there is one. The empty fingerprint is that of any key.
func (k Keys) Find(fingerprint string) (ed25519.PrivateKey, bool) {
	for _, one := range []ed25519.PrivateKey{k.Current, k.Previous} {
		if one != nil && (fingerprint == "" || Fingerprint(Public(one)) == fingerprint) {
			return one, true
		}
	}
	return nil, false
}

func Public(private ed25519.PrivateKey) ed25519.PublicKey {
	public, _ := private.Public().(ed25519.PublicKey) // always this type
	return public
}

var encoding = base64.RawURLEncoding.Strict()

// Fingerprint returns the SHA-256 of a public key in unpadded base64url, 43 characters.
func Fingerprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return encoding.EncodeToString(sum[:])
}

// IsFingerprint reports whether a text has the form of a fingerprint.
func IsFingerprint(text string) bool {
	sum, err := encoding.DecodeString(text)
	return err == nil && len(sum) == sha256.Size
}

// Message joins fields into the bytes to sign, so that no two lists of fields give the same bytes. The purpose comes first, so that a signature for
// one purpose is invalid for any other.
func Message(purpose string, fields ...[]byte) []byte {
	joined := []byte(purpose + "\n")
	for _, field := range fields {
		joined = binary.BigEndian.AppendUint32(joined, uint32(len(field)))
		joined = append(joined, field...)
	}
	return joined
}
