// SPDX-License-Identifier: Apache-2.0

// Package key derives the keys that a cluster shows to its providers from one secret.
//
// It must not know where the secret is kept. Its proof is key_test.go.
package key

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// RootSize is the length, in bytes, of the secret that a cluster's keys are made of.
const RootSize = 32

// Derive makes the key that a consumer shows to one provider, from the consumer's root secret: a key of its own for
// each provider, so that none can pass on what was signed for it, and the same one at any time, so that a provider whom the consumer
// had given up, and that pinned the key, knows the consumer when it comes back. See RFC 5869.
func Derive(root []byte, providerID string) (ed25519.PrivateKey, error) {
	if len(root) != RootSize {
		return nil, fmt.Errorf("the root of keys has %d bytes, want %d", len(root), RootSize)
	}
	seed, err := hkdf.Key(sha256.New, root, nil, "liqo.io/auth/key/v1/"+providerID, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key for cluster %s: %w", providerID, err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
