// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ecdh"
	"crypto/hpke"
	"fmt"
)

// SealKeySize is the length, in bytes, of an X25519 public key.
const SealKeySize = 32

// SealingKey opens what a provider sealed for one request of a consumer.
type SealingKey struct{ private hpke.PrivateKey }

// NewSealingKey returns a random key.
func NewSealingKey() (SealingKey, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return SealingKey{}, fmt.Errorf("make a key for the answer: %w", err)
	}
	return SealingKey{private}, nil
}

// Public is the key to which a text is sealed.
func (k SealingKey) Public() []byte { return k.private.PublicKey().Bytes() }

// Open returns what [Seal] sealed with the same info.
func (k SealingKey) Open(info, sealed []byte) ([]byte, error) {
	return hpke.Open(k.private, hpke.HKDFSHA256(), hpke.AES128GCM(), info, sealed)
}

// Seal encrypts a text to a public key of a [SealingKey] (RFC 9180, base mode).
func Seal(to, info, text []byte) ([]byte, error) {
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(to)
	if err != nil {
		return nil, fmt.Errorf("the key to seal the token to: %w", err)
	}
	return hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES128GCM(), info, text)
}
