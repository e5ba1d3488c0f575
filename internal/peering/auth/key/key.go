// SPDX-License-Identifier: Apache-2.0

// Package key derives the keys with which a cluster authenticates to its providers from one secret.
//
// It must not know where the secret is stored. The proof is key_test.go.
package key

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// RootSize is the length, in bytes, of the secret from which a cluster's keys are derived.
const RootSize = 32

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
