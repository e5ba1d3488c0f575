// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/network/report"
)

// forgotten is the age at which a replaced key is given up although the new key had no handshake yet: longer than a rotation takes.
const forgotten = 90 * time.Second

// remoteKeys follows the key of one peer's gateway. A peer announces a new key before it uses it, so for a while both are accepted, and the
// key with the latest handshake is in use. A gateway that starts during a rotation does not know which of the two that is.
type remoteKeys struct {
	// keys are one or two, the one in use first.
	keys    []string
	changed time.Time
	// agreed: the first key had a handshake once. The device forgets its handshakes with each new attempt.
	agreed bool
}

// claimedKeys are the keys that a peer announces.
type claimedKeys struct {
	// now is the announced key, before the one announced until a moment ago; empty if unknown.
	now, before string
	// elsewhere reports whether another peer announces a key. An announced key counts more than a remembered one.
	elsewhere func(key string) bool
}

// step returns the keys, the one in use first. handshake returns the time of a key's last handshake.
func (k *remoteKeys) step(now time.Time, claimed claimedKeys, handshake func(key string) time.Time) []string {
	k.learn(now, claimed, handshake)
	k.agreed = k.agreed || !handshake(k.keys[0]).IsZero()
	if len(k.keys) == 2 {
		k.decide(now, claimed, handshake)
	}
	return slices.Clone(k.keys)
}

// learn takes over the announced keys; one of the known keys stays.
func (k *remoteKeys) learn(now time.Time, claimed claimedKeys, handshake func(key string) time.Time) {
	switch {
	case len(k.keys) == 0 && claimed.before != "" && claimed.before != claimed.now && handshake(claimed.now).IsZero():
		k.keys, k.changed = []string{claimed.before, claimed.now}, now
	case len(k.keys) == 0:
		k.keys = []string{claimed.now}
	case slices.Contains(k.keys, claimed.now):
	case len(k.keys) == 2 && k.agreed:
		k.keys[1] = claimed.now // does not extend the time of the first key
	default:
		k.keys, k.changed = []string{k.keys[len(k.keys)-1], claimed.now}, now
	}
}

// decide chooses between two keys as soon as handshakes or time allow.
func (k *remoteKeys) decide(now time.Time, claimed claimedKeys, handshake func(key string) time.Time) {
	first, second := k.keys[0], k.keys[1]
	other := first // the key that is not announced now
	if first == claimed.now {
		other = second
	}
	took := handshake(second).After(k.changed)
	switch {
	case took && second == claimed.now, claimed.elsewhere(other), now.Sub(k.changed) >= forgotten:
		k.keys, k.agreed = []string{claimed.now}, !handshake(claimed.now).IsZero()
	case took:
		k.keys, k.agreed, k.changed = []string{second, first}, true, now // the announced key comes next
	case first == claimed.now && k.agreed:
		k.keys = k.keys[:1] // the peer withdrew the new key
	}
}

// Key is the key pair of this gateway.
type Key struct {
	Private [32]byte
	Public  string
}

// String keeps the private half out of logs.
func (k Key) String() string { return "gateway key " + k.Public }

// GoString keeps the private half out of logs.
func (k Key) GoString() string { return k.String() }

// Keyring holds the gateway's own keys in memory: the one in use, and the previous one, which the tunnel may still have.
type Keyring struct {
	// Read returns the key of a lane in the Secret; false if there is none.
	Read func(secret *corev1.Secret, lane int) (Key, bool, error)

	mu   sync.Mutex
	keys []Key
	// shown is the certificate for the key in use, and of which key it is.
	shown   *tls.Certificate
	shownOf string
}

// Certificate returns what proves this gateway to the reader of its report; it is for tls.Config.GetCertificate.
func (k *Keyring) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.keys) == 0 {
		return nil, errors.New("this gateway has not read its key yet")
	}
	if key := k.keys[0]; k.shown == nil || k.shownOf != key.Public {
		made, err := report.Certificate(key.Private)
		if err != nil {
			return nil, err
		}
		k.shown, k.shownOf = made, key.Public
	}
	return k.shown, nil
}

// Private returns the private key for a public one, to configure the tunnel.
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

// own returns the public key to use. A missing or broken Secret changes nothing, because peers know the key that was read last.
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
