// SPDX-License-Identifier: Apache-2.0

// Package key derives the keys with which a cluster authenticates to its providers from one secret.
//
// It must not know who reads and writes the secret. The proof is key_test.go.
package key

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// RootSize is the length, in bytes, of the secret from which a cluster's keys are derived.
const RootSize = 32

// Secret is the name of the Secret with the roots, in the install namespace. It stays when peerings end: a provider that was unreachable during an unpeer
// still has our key pinned and must recognise us.
const Secret = "liqo-peering-key"

const (
	current  = "root"
	previous = "previous"
)

// Roots are the secrets from which the keys of a cluster are derived, of RootSize bytes each.
type Roots struct {
	Current []byte
	// Previous is what Current replaced; nil if there is none.
	Previous []byte
}

// Generate returns a new root.
func Generate() Roots {
	root := make([]byte, RootSize)
	_, _ = rand.Read(root) // never fails
	return Roots{Current: root}
}

// Parse reads the data of the Secret. Derive checks the roots.
func Parse(data map[string][]byte) Roots { return Roots{data[current], data[previous]} }

// Data returns the data of the Secret.
func (r Roots) Data() map[string][]byte {
	data := map[string][]byte{current: r.Current}
	if r.Previous != nil {
		data[previous] = r.Previous
	}
	return data
}

// Derive returns the key of a consumer for one provider, from the consumer's root secret (RFC 5869). Each provider has a
// different key, so that it cannot forward what was signed for it. The key never changes, so that a provider that was
// unreachable during an unpeer, and still has it pinned, recognises the consumer.
func Derive(root []byte, providerID string) (ed25519.PrivateKey, error) {
	if len(root) != RootSize {
		return nil, fmt.Errorf("the root secret has %d bytes, want %d", len(root), RootSize)
	}
	seed, err := hkdf.Key(sha256.New, root, nil, "liqo.io/auth/key/v1/"+providerID, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key for cluster %s: %w", providerID, err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
