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
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/network/ipam"
)

// KeysSecret is the name of the Secret in the install namespace that holds the keys of all gateways. The controller manager writes it, gateways read it.
const KeysSecret = "liqo-gateway-keys"

// Entries of the Secret: keys as "lane-0.current" and so on, in the form of `wg genkey`, and the state of the rotation.
const (
	currentEntry = "current"
	nextEntry    = "next"
	// handledEntry is the value of the annotation for which the keys in use were made.
	handledEntry = "rotation"
	// begunEntry is when the rotation in progress started, and for which value of the annotation.
	begunEntry = "rotation-begun"
)

const (
	keySize = 32
	// settleTime is the time that peers get to pass a new public key to their gateways, after all of them have received it.
	settleTime = 2 * time.Second
	// rotateDeadline ends the wait for peers that do not answer.
	rotateDeadline = time.Minute
)

// keysName returns the name of the Secret.
func keysName(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: KeysSecret}
}

// GatewayKey is the key of one gateway.
type GatewayKey struct {
	// Current is the private key of the tunnel.
	Current [keySize]byte
	// Public is its public key, as WireGuard's tools print it.
	Public string
}

// String keeps the private key out of logs.
func (k GatewayKey) String() string { return "gateway key " + k.Public }

// GoString keeps the private key out of logs.
func (k GatewayKey) GoString() string { return k.String() }

// GatewayKeySet holds the key of each lane.
type GatewayKeySet map[int]GatewayKey

// GatewayKeys reads the Secret [KeysSecret]. A gateway uses Current, even during a rotation.
func GatewayKeys(secret *corev1.Secret) (GatewayKeySet, error) {
	r, err := readRing(secret)
	if err != nil {
		return nil, err
	}
	all := GatewayKeySet{}
	for lane, keys := range r.lanes {
		key := GatewayKey{Public: public(keys.current)}
		copy(key.Current[:], keys.current.Bytes())
		all[lane] = key
	}
	return all, nil
}

type keyPair struct{ current, next *ecdh.PrivateKey }

// ring is the content of the Secret.
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
			return ring{}, fmt.Errorf("entry %s of Secret %s does not start with a time in RFC 3339 format; delete the entry to start the rotation again", begunEntry, secret.Name)
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
		return nil, false, fmt.Errorf("entry %s of Secret %s is not a key of 32 bytes in base64; delete the entry to have a new key created", entry(lane, which), secret.Name)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, false, fmt.Errorf("entry %s of Secret %s is not an X25519 key; delete the entry to have a new key created", entry(lane, which), secret.Name)
	}
	return key, true, nil
}

func public(key *ecdh.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
}

// rotating reports whether the annotation requests keys that are not in use yet.
func (r *ring) rotating() bool { return r.wanted != "" && r.wanted != r.handled }

// advertised returns the public key for peers: the next one as soon as the start of the rotation is stored.
func (r *ring) advertised(lane int) string {
	keys, ok := r.lanes[lane]
	switch {
	case !ok:
		return ""
	case r.rotating() && r.begun == r.wanted:
		return public(keys.next)
	default:
		return public(keys.current)
	}
}

// missing reports whether a lane has no keys.
func (r *ring) missing() bool { return len(r.lanes) < ipam.MaxLanes }

// fill creates keys for the lanes without one, so that a lane that is added later already has a key.
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

// promote makes the next keys the current ones, and creates new next keys.
func (r *ring) promote(random io.Reader) error {
	for lane, keys := range r.lanes {
		next, err := newKey(random)
		if err != nil {
			return err
		}
		r.lanes[lane] = keyPair{keys.next, next}
	}
	r.handled, r.begun, r.begunAt = r.wanted, "", time.Time{}
	return nil
}

// newKey returns a clamped key, because the kernel returns keys in that form.
func newKey(random io.Reader) (*ecdh.PrivateKey, error) {
	raw := make([]byte, keySize)
	if _, err := io.ReadFull(random, raw); err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	raw[0] &= 248
	raw[31] = raw[31]&127 | 64
	return ecdh.X25519().NewPrivateKey(raw)
}

// write stores the ring in the Secret. Other entries stay.
func (r *ring) write(secret *corev1.Secret) {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for lane, keys := range r.lanes {
		for which, key := range map[string]*ecdh.PrivateKey{currentEntry: keys.current, nextEntry: keys.next} {
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

// rotation is the next step of a rotation.
type rotation int

const (
	rotationIdle rotation = iota
	rotationStart
	rotationWait
	rotationPromote
)

// rotate returns the next step. settled is since when all peers have answered to the next public keys; zero if not all have. For rotationWait
// it also returns how long to wait at most.
func (r *ring) rotate(settled, now time.Time) (rotation, time.Duration) {
	if !r.rotating() {
		return rotationIdle, 0
	}
	if r.begun != r.wanted {
		return rotationStart, 0
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

func checkKey(text string) error {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != keySize || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("public key %.60q is not 32 bytes in base64", text)
	}
	if [keySize]byte(key) == [keySize]byte{} {
		return errors.New("the public key is all zero")
	}
	return nil
}
