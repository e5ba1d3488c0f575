// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// remoteKeys follows the key of one peer's gateway. A new one is told before it is used, so for a while both are accepted; the new
// one is in use as soon as it has agreed on something.
type remoteKeys struct {
	keys    []string
	changed time.Time
}

// step gives the keys, the one in use first. handshake says when a key agreed last.
func (k *remoteKeys) step(now time.Time, told string, handshake func(key string) time.Time) []string {
	switch {
	case len(k.keys) == 0:
		k.keys = []string{told}
	case k.keys[0] == told:
		k.keys = k.keys[:1] // changed its mind
	case k.keys[len(k.keys)-1] != told:
		k.keys, k.changed = []string{k.keys[0], told}, now
	}
	if len(k.keys) == 2 && handshake(told).After(k.changed) {
		k.keys = []string{told}
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
