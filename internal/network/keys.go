// SPDX-License-Identifier: Apache-2.0

package network

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/network/ipam"
)

// KeysSecret, in the install namespace, holds the keys of all gateways. The controller manager writes it, gateways read it by name.
const KeysSecret = "liqo-gateway-keys"

// Entries of the Secret: "lane-0.current" and so on, as `wg genkey` writes keys, and how far rotation is.
const (
	currentEntry = "current"
	nextEntry    = "next"
	// handledEntry is the value of the annotation that the keys in use were made for.
	handledEntry = "rotation"
	// begunEntry is when the rotation in progress began, and for which value of the annotation.
	begunEntry = "rotation-begun"
)

const (
	keySize = 32
	// settleTime is what peers get to hand a new public key on to their gateways, after all of them have it.
	settleTime = 2 * time.Second
	// rotateDeadline ends the wait for peers that do not answer.
	rotateDeadline = time.Minute
)

// GatewayKey is the key of one gateway.
type GatewayKey struct {
	// Current is the private key of the tunnel.
	Current [keySize]byte
	// Public is its public key, as WireGuard's tools print it.
	Public string
}

// String keeps the private key out of logs.
func (k GatewayKey) String() string { return "gateway key " + k.Public }

// GoString does, too.
func (k GatewayKey) GoString() string { return k.String() }

// GatewayKeySet holds the key of each lane.
type GatewayKeySet map[int]GatewayKey

// GatewayKeys reads the Secret [KeysSecret]. A gateway uses Current, also while keys are being rotated.
func GatewayKeys(secret *corev1.Secret) (GatewayKeySet, error) {
	r, err := readRing(secret)
	if err != nil {
		return nil, err
	}
	all := GatewayKeySet{}
	for lane, pair := range r.lanes {
		key := GatewayKey{Public: public(pair.current)}
		copy(key.Current[:], pair.current.Bytes())
		all[lane] = key
	}
	return all, nil
}

type keyPair struct{ current, next *ecdh.PrivateKey }

// ring is what the Secret holds.
type ring struct {
	lanes          map[int]keyPair
	wanted         string // the annotation
	handled, begun string // values of it
	begunAt        time.Time
}

func readRing(secret *corev1.Secret) (ring, error) {
	r := ring{lanes: map[int]keyPair{}, wanted: secret.Annotations[labels.RotateKeys], handled: string(secret.Data[handledEntry])}
	for lane := range ipam.MaxLanes {
		current, ok, err := readKey(secret, lane, currentEntry)
		if err != nil {
			return ring{}, err
		}
		if !ok {
			continue // added by fill
		}
		next, ok, err := readKey(secret, lane, nextEntry)
		if err != nil {
			return ring{}, err
		}
		if ok {
			r.lanes[lane] = keyPair{current, next}
		}
	}
	if at, value, ok := strings.Cut(string(secret.Data[begunEntry]), " "); ok {
		var err error
		if r.begunAt, err = time.Parse(time.RFC3339, at); err != nil {
			return ring{}, fmt.Errorf("entry %s of Secret %s is no time and value; delete the entry", begunEntry, secret.Name)
		}
		r.begun = value
	}
	return r, nil
}

func entry(lane int, which string) string { return fmt.Sprintf("lane-%d.%s", lane, which) }

func readKey(secret *corev1.Secret, lane int, which string) (*ecdh.PrivateKey, bool, error) {
	text, ok := secret.Data[entry(lane, which)]
	if !ok {
		return nil, false, nil
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err == nil && len(raw) != keySize {
		err = errors.New("not 32 bytes")
	}
	if err != nil { // without the reason, which may quote the key
		return nil, false, fmt.Errorf("entry %s of Secret %s is no key, base64 of 32 bytes; delete the entry, and another one is made", entry(lane, which), secret.Name)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, false, fmt.Errorf("entry %s of Secret %s is no key", entry(lane, which), secret.Name)
	}
	return key, true, nil
}

func public(key *ecdh.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
}

// rotating tells whether the annotation asks for keys that are not in use yet.
func (r *ring) rotating() bool { return r.wanted != "" && r.wanted != r.handled }

// told is the public key that peers are told: the next one as soon as that is written down.
func (r *ring) told(lane int) string {
	pair, ok := r.lanes[lane]
	switch {
	case !ok:
		return ""
	case r.rotating() && r.begun == r.wanted:
		return public(pair.next)
	default:
		return public(pair.current)
	}
}

// missing tells whether a lane has no keys.
func (r *ring) missing() bool { return len(r.lanes) < ipam.MaxLanes }

// fill gives keys to the lanes that have none, so that a lane that is added later has one already.
func (r *ring) fill(random io.Reader) error {
	for lane := range ipam.MaxLanes {
		if _, ok := r.lanes[lane]; ok {
			continue
		}
		current, err := newKey(random)
		if err != nil {
			return err
		}
		next, err := newKey(random)
		if err != nil {
			return err
		}
		r.lanes[lane] = keyPair{current, next}
	}
	return nil
}

// promote puts the next keys in use.
func (r *ring) promote(random io.Reader) error {
	for lane, pair := range r.lanes {
		next, err := newKey(random)
		if err != nil {
			return err
		}
		r.lanes[lane] = keyPair{pair.next, next}
	}
	r.handled, r.begun, r.begunAt = r.wanted, "", time.Time{}
	return nil
}

// newKey makes a key in the form in which the kernel gives it back: clamped.
func newKey(random io.Reader) (*ecdh.PrivateKey, error) {
	raw := make([]byte, keySize)
	if _, err := io.ReadFull(random, raw); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	raw[0] &= 248
	raw[31] = raw[31]&127 | 64
	return ecdh.X25519().NewPrivateKey(raw)
}

// write puts the ring into the Secret. Entries that are not of a ring stay.
func (r *ring) write(secret *corev1.Secret) {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for lane, pair := range r.lanes {
		for which, key := range map[string]*ecdh.PrivateKey{currentEntry: pair.current, nextEntry: pair.next} {
			data[entry(lane, which)] = []byte(base64.StdEncoding.EncodeToString(key.Bytes()))
		}
	}
	delete(data, begunEntry)
	if r.begun != "" {
		data[begunEntry] = []byte(r.begunAt.UTC().Format(time.RFC3339) + " " + r.begun)
	}
	if r.handled != "" {
		data[handledEntry] = []byte(r.handled)
	}
	secret.Data = data
}

// rotation is what is to be done next to bring the keys to where the annotation wants them.
type rotation int

const (
	rotationIdle rotation = iota
	rotationBegin
	rotationWait
	rotationPromote
)

// rotate decides. settled is since when all peers have answered to the next public keys; zero if not all have. A wait says for how long at most.
func (r *ring) rotate(settled, now time.Time) (rotation, time.Duration) {
	if !r.rotating() {
		return rotationIdle, 0
	}
	if r.begun != r.wanted {
		return rotationBegin, 0
	}
	left := r.begunAt.Add(rotateDeadline).Sub(now)
	if left > rotateDeadline {
		left = rotateDeadline // the clock was set back
	}
	if !settled.IsZero() {
		left = min(left, settled.Add(settleTime).Sub(now))
	}
	if left > 0 {
		return rotationWait, left
	}
	return rotationPromote, 0
}
