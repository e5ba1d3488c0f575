// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// The end that accepts sends a nonce. The end that dialled answers with proof that it has the WireGuard key of a peer. So unauthenticated clients are
// turned away before they cost anything, the accepting end knows whose stream it is, and nothing on the way shows which peers they are. WireGuard
// inside proves both ends to each other.
const (
	nonceSize = 32
	proofSize = sha256.Size
	// purpose is part of the keys, so that the same keys prove nothing elsewhere.
	purpose = "liqo carrier v1"
)

// Key is a WireGuard key: 32 bytes of Curve25519.
type Key [32]byte

// proofKey is what two peers share. It differs by direction, so that a proof cannot be sent back.
func proofKey(own *ecdh.PrivateKey, peer, dialler, acceptor Key) ([]byte, error) {
	public, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, err
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("the public key of the peer is none: %w", err)
	}
	return hkdf.Key(sha256.New, shared, nil, purpose+string(dialler[:])+string(acceptor[:]), sha256.Size)
}

func proofOf(key, nonce []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(nonce)
	return mac.Sum(nil)
}

// keyring has the keys of this end, and of its peers. It is not changed.
type keyring struct {
	public Key
	// dials and accepts are the keys of proofs by peer, for streams that this end dials and accepts.
	dials, accepts map[Key][]byte
}

func newKeyring(private Key, peers []Key) (*keyring, error) {
	own, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return nil, err
	}
	public := Key(own.PublicKey().Bytes())
	ring := &keyring{public: public, dials: map[Key][]byte{}, accepts: map[Key][]byte{}}
	for _, peer := range peers {
		dial, err := proofKey(own, peer, public, peer)
		if err != nil {
			continue // of no use to WireGuard either
		}
		accept, err := proofKey(own, peer, peer, public)
		if err != nil {
			continue
		}
		ring.dials[peer], ring.accepts[peer] = dial, accept
	}
	return ring, nil
}

var (
	errNoPeer   = errors.New("the other end is not a peer of this gateway")
	errSilent   = errors.New("the other end is silent")
	errReplaced = errors.New("the peer has opened a newer stream")
	errCrossed  = errors.New("both ends have dialled, and the other stream stays")
	errTooOften = errors.New("the peer opens streams too often")
	errHangup   = errors.New("closed by this end")
)

// welcome finds out which peer dialled.
func (k *keyring) welcome(conn net.Conn) (peer Key, err error) {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	if _, err := conn.Write(nonce); err != nil {
		return Key{}, err
	}
	proof := make([]byte, proofSize)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return Key{}, err
	}
	err = errNoPeer
	for one, key := range k.accepts {
		if hmac.Equal(proof, proofOf(key, nonce)) {
			peer, err = one, nil
		}
	}
	return peer, err
}

// introduce proves this end to the one that it has dialled.
func (k *keyring) introduce(conn net.Conn, peer Key) error {
	key := k.dials[peer]
	if key == nil {
		return errNoPeer
	}
	nonce := make([]byte, nonceSize)
	if _, err := io.ReadFull(conn, nonce); err != nil {
		return fmt.Errorf("no carrier answers: %w", err)
	}
	if _, err := conn.Write(proofOf(key, nonce)); err != nil {
		return err
	}
	// The first frame is empty: the other end has admitted this one.
	first := make([]byte, transport.HeaderSize)
	if _, err := io.ReadFull(conn, first); err != nil {
		return fmt.Errorf("the peer's gateway does not admit this one: %w", err)
	}
	if first[0] != 0 || first[1] != 0 {
		return errors.New("the peer's gateway answers with something that is not a carrier")
	}
	return nil
}
