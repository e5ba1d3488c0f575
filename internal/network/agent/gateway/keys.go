// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/network/report"
)

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
