// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ecdh"
	"crypto/hpke"
	"fmt"
)

// sealKeySize is the length, in bytes, of an X25519 public key.
const sealKeySize = 32

// sealingKey opens what a provider sealed for one request of a consumer.
type sealingKey struct{ private hpke.PrivateKey }

func newSealingKey() (sealingKey, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return sealingKey{}, fmt.Errorf("make a key for the answer: %w", err)
	}
	return sealingKey{private}, nil
}

func (k sealingKey) public() []byte { return k.private.PublicKey().Bytes() }

// open returns what [seal] sealed with the same info.
func (k sealingKey) open(info, sealed []byte) ([]byte, error) {
	return hpke.Open(k.private, hpke.HKDFSHA256(), hpke.AES128GCM(), info, sealed)
}

// seal encrypts a text to a public key of a [sealingKey] (RFC 9180, base mode).
func seal(to, info, text []byte) ([]byte, error) {
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(to)
	if err != nil {
		return nil, fmt.Errorf("the key to seal the token to: %w", err)
	}
	return hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES128GCM(), info, text)
}
