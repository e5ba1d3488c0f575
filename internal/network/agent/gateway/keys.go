// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// forgotten is when the key of before is given up though the new one has not agreed on anything: longer than peers take for a rotation.
const forgotten = 90 * time.Second

// remoteKeys follows the key of one peer's gateway. A new one is told before it is used, so for a while both are accepted; the new
// one is in use as soon as it has agreed on something. One that never agreed on anything is not worth keeping.
type remoteKeys struct {
	keys    []string
	changed time.Time
	// agreed: the first key has agreed on something once. What the tunnel knows of that goes with each new attempt.
	agreed bool
}

// step gives the keys, the one in use first. handshake says when a key agreed last, elsewhere that another
// peer tells a key to be its own: what is told counts more than what is remembered.
func (k *remoteKeys) step(now time.Time, told string, handshake func(key string) time.Time, elsewhere func(key string) bool) []string {
	switch {
	case len(k.keys) == 0:
		k.keys = []string{told}
	case k.keys[0] == told:
		k.keys = k.keys[:1] // changed its mind
	case k.keys[len(k.keys)-1] != told:
		if len(k.keys) == 1 {
			k.changed = now // the old one does not get longer by further new ones
		}
		k.keys = []string{k.keys[0], told}
	}
	first := k.keys[0]
	k.agreed = k.agreed || !handshake(first).IsZero()
	if len(k.keys) == 2 && (!k.agreed || elsewhere(first) || handshake(told).After(k.changed) || now.Sub(k.changed) >= forgotten) {
		k.keys, k.agreed = []string{told}, !handshake(told).IsZero()
	}
	return slices.Clone(k.keys)
}

// Key is the own key of a gateway.
type Key struct {
	Private [32]byte
	Public  string
}

// String keeps the private half out of logs.
func (k Key) String() string { return "gateway key " + k.Public }

// GoString does, too.
func (k Key) GoString() string { return k.String() }

// Keyring holds the gateway's own keys in memory: the one in use, and the one before, which the tunnel may still have.
type Keyring struct {
	// Read finds the key of a lane in the Secret; false if it is not there.
	Read func(secret *corev1.Secret, lane int) (Key, bool, error)

	mu   sync.Mutex
	keys []Key
}

// Private gives the private key for a public one, to whoever sets up the tunnel.
func (k *Keyring) Private(public string) ([32]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		if key.Public == public {
			return key.Private, true
		}
	}
	return [32]byte{}, false
}

// own gives the public key to use. A Secret that is gone or spoiled changes nothing: the last key that was read is the one that peers know.
func (k *Keyring) own(secret *corev1.Secret, lane int) (public string, err error) {
	var key Key
	var ok bool
	if secret != nil {
		key, ok, err = k.Read(secret, lane)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ok && err == nil && (len(k.keys) == 0 || k.keys[0].Public != key.Public) {
		k.keys = append([]Key{key}, k.keys[:min(1, len(k.keys))]...)
	}
	if len(k.keys) == 0 {
		return "", err
	}
	return k.keys[0].Public, err
}
