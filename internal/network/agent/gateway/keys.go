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

// remoteKeys follows the key of one peer's gateway. A new one is told before it is used, so for a while both are accepted, and the one that
// agrees on something is in use. Who begins in the middle of that knows neither which one it is.
type remoteKeys struct {
	// keys are one or two, the one in use first.
	keys    []string
	changed time.Time
	// agreed: the first key has agreed on something once. What the tunnel knows of that goes with each new attempt.
	agreed bool
}

// toldKeys is what a peer tells of its key.
type toldKeys struct {
	// now is the one that is told, before the one that was told until a moment ago; empty if it is not known.
	now, before string
	// elsewhere: another peer tells a key to be its own. What is told counts more than what is remembered.
	elsewhere func(key string) bool
}

// step gives the keys, the one in use first. handshake says when a key agreed last.
func (k *remoteKeys) step(now time.Time, told toldKeys, handshake func(key string) time.Time) []string {
	k.learn(now, told, handshake)
	k.agreed = k.agreed || !handshake(k.keys[0]).IsZero()
	if len(k.keys) == 2 {
		k.decide(now, told, handshake)
	}
	return slices.Clone(k.keys)
}

// learn takes what is told: of the keys that are known already, one stays.
func (k *remoteKeys) learn(now time.Time, told toldKeys, handshake func(key string) time.Time) {
	switch {
	case len(k.keys) == 0 && told.before != "" && told.before != told.now && handshake(told.now).IsZero():
		k.keys, k.changed = []string{told.before, told.now}, now
	case len(k.keys) == 0:
		k.keys = []string{told.now}
	case slices.Contains(k.keys, told.now):
	case len(k.keys) == 2 && k.agreed:
		k.keys[1] = told.now // the first one does not get longer by that
	default:
		k.keys, k.changed = []string{k.keys[len(k.keys)-1], told.now}, now
	}
}

// decide between two keys, as soon as that can be done.
func (k *remoteKeys) decide(now time.Time, told toldKeys, handshake func(key string) time.Time) {
	first, second := k.keys[0], k.keys[1]
	other := first // that is not told
	if first == told.now {
		other = second
	}
	took := handshake(second).After(k.changed)
	switch {
	case took && second == told.now, told.elsewhere(other), now.Sub(k.changed) >= forgotten:
		k.keys, k.agreed = []string{told.now}, !handshake(told.now).IsZero()
	case took:
		k.keys, k.agreed, k.changed = []string{second, first}, true, now // the one that is told comes next
	case first == told.now && k.agreed:
		k.keys = k.keys[:1] // changed its mind
	}
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
