// SPDX-License-Identifier: Apache-2.0

package keyring

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

// SecretName is the name of the Secret in the install namespace that holds the keys of all gateways. The controller manager writes it, gateways read it.
const SecretName = "liqo-gateway-keys"

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
	Size = 32
	// settleTime is the time that peers get to pass a new public key to their gateways, after all of them have received it.
	settleTime = 2 * time.Second
	// rotateDeadline ends the wait for peers that do not answer.
	rotateDeadline = time.Minute
)

func Name(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: SecretName}
}

type Key struct {
	// Current is the private key of the tunnel.
	Current [Size]byte
	// Public is its public key, as WireGuard's tools print it.
	Public string
}

// String keeps the private key out of logs.
func (k Key) String() string { return "gateway key " + k.Public }

// GoString keeps the private key out of logs.
func (k Key) GoString() string { return k.String() }

type Set map[int]Key

// Keys reads the Secret [KeysSecret]. A gateway uses Current, even during a rotation.
func Keys(secret *corev1.Secret) (Set, error) {
	r, err := Read(secret)
	if err != nil {
		return nil, err
	}
	all := Set{}
	for lane, keys := range r.Lanes {
		key := Key{Public: public(keys.current)}
		copy(key.Current[:], keys.current.Bytes())
		all[lane] = key
	}
	return all, nil
}

type KeyPair struct{ current, next *ecdh.PrivateKey }

// Ring is the content of the Secret.
type Ring struct {
	Lanes          map[int]KeyPair
	Wanted         string // the annotation
	handled, Begun string // values of it
	BegunAt        time.Time
}

func Read(secret *corev1.Secret) (Ring, error) {
	r := Ring{Lanes: map[int]KeyPair{}, Wanted: secret.Annotations[labels.RotateKeys], handled: string(secret.Data[handledEntry])}
	for lane := range ipam.MaxLanes {
		current, ok, err := readKey(secret, lane, currentEntry)
		if err != nil {
			return Ring{}, err
		}
		if !ok {
			continue // added by fill
		}
		next, ok, err := readKey(secret, lane, nextEntry)
		if err != nil {
			return Ring{}, err
		}
		if ok {
			r.Lanes[lane] = KeyPair{current, next}
		}
	}
	if at, value, ok := strings.Cut(string(secret.Data[begunEntry]), " "); ok {
		var err error
		if r.BegunAt, err = time.Parse(time.RFC3339, at); err != nil {
			return Ring{}, fmt.Errorf(
				"entry %s of Secret %s does not start with a time in RFC 3339 format; delete the entry to start the rotation again", begunEntry,
				secret.Name,
			)
		}
		r.Begun = value
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
	if err == nil && len(raw) != Size {
		err = errors.New("not 32 bytes")
	}
	if err != nil { // without the reason, which may quote the key
		return nil, false, fmt.Errorf(
			"entry %s of Secret %s is not a key of 32 bytes in base64; delete the entry to have a new key created", entry(lane, which), secret.Name,
		)
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
func (r *Ring) rotating() bool { return r.Wanted != "" && r.Wanted != r.handled }

// Advertised returns the public key for peers: the next one as soon as the start of the rotation is stored.
func (r *Ring) Advertised(lane int) string {
	keys, ok := r.Lanes[lane]
	switch {
	case !ok:
		return ""
	case r.rotating() && r.Begun == r.Wanted:
		return public(keys.next)
	default:
		return public(keys.current)
	}
}

// Missing reports whether a lane has no keys.
func (r *Ring) Missing() bool { return len(r.Lanes) < ipam.MaxLanes }

// Fill creates keys for the lanes without one, so that a lane that is added later already has a key.
func (r *Ring) Fill(random io.Reader) error {
	for lane := range ipam.MaxLanes {
		if _, ok := r.Lanes[lane]; ok {
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
		r.Lanes[lane] = KeyPair{current, next}
	}
	return nil
}

// Promote makes the next keys the current ones, and creates new next keys.
func (r *Ring) Promote(random io.Reader) error {
	for lane, keys := range r.Lanes {
		next, err := newKey(random)
		if err != nil {
			return err
		}
		r.Lanes[lane] = KeyPair{keys.next, next}
	}
	r.handled, r.Begun, r.BegunAt = r.Wanted, "", time.Time{}
	return nil
}

// newKey returns a clamped key, because the kernel returns keys in that form.
func newKey(random io.Reader) (*ecdh.PrivateKey, error) {
	raw := make([]byte, Size)
	if _, err := io.ReadFull(random, raw); err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	raw[0] &= 248
	raw[31] = raw[31]&127 | 64
	return ecdh.X25519().NewPrivateKey(raw)
}

// Write stores the ring in the Secret. Other entries stay.
func (r *Ring) Write(secret *corev1.Secret) {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for lane, keys := range r.Lanes {
		for which, key := range map[string]*ecdh.PrivateKey{currentEntry: keys.current, nextEntry: keys.next} {
			data[entry(lane, which)] = []byte(base64.StdEncoding.EncodeToString(key.Bytes()))
		}
	}
	delete(data, begunEntry)
	if r.Begun != "" {
		data[begunEntry] = []byte(r.BegunAt.UTC().Format(time.RFC3339) + " " + r.Begun)
	}
	if r.handled != "" {
		data[handledEntry] = []byte(r.handled)
	}
	secret.Data = data
}

// rotation is the next step of a rotation.
type rotation int

const (
	RotationIdle rotation = iota
	RotationStart
	RotationWait
	RotationPromote
)

// Rotate returns the next step. settled is since when all peers have answered to the next public keys; zero if not all have. For rotationWait
// it also returns how long to wait at most.
func (r *Ring) Rotate(settled, now time.Time) (rotation, time.Duration) {
	if !r.rotating() {
		return RotationIdle, 0
	}
	if r.Begun != r.Wanted {
		return RotationStart, 0
	}
	left := r.BegunAt.Add(rotateDeadline).Sub(now)
	if left > rotateDeadline {
		left = rotateDeadline // the clock was set back
	}
	if !settled.IsZero() {
		left = min(left, settled.Add(settleTime).Sub(now))
	}
	if left > 0 {
		return RotationWait, left
	}
	return RotationPromote, 0
}

func CheckPublic(text string) error {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != Size || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("public key %.60q is not 32 bytes in base64", text)
	}
	if [Size]byte(key) == [Size]byte{} {
		return errors.New("the public key is all zero")
	}
	return nil
}
