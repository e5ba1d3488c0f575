// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"slices"
	"time"
)

// Forgotten is the age at which a replaced key is given up although the new key had no handshake yet: longer than a rotation takes.
const Forgotten = 90 * time.Second

// Keys follows the key of one peer's gateway. A peer announces a new key before it uses it, so for a while both are accepted, and the
// key with the latest handshake is in use. A gateway that starts during a rotation does not know which of the two that is.
type Keys struct {
	// keys are one or two, the one in use first.
	keys    []string
	changed time.Time
	// agreed: the first key had a handshake once. The device forgets its handshakes with each new attempt.
	agreed bool
}

// Claimed are the keys that a peer announces.
type Claimed struct {
	// Now is the announced key, before the one announced until a moment ago; empty if unknown.
	Now, Before string
	// Elsewhere reports whether another peer announces a key. An announced key counts more than a remembered one.
	Elsewhere func(key string) bool
}

// Step returns the keys, the one in use first. handshake returns the time of a key's last handshake.
func (k *Keys) Step(now time.Time, claimed Claimed, handshake func(key string) time.Time) []string {
	k.learn(now, claimed, handshake)
	k.agreed = k.agreed || !handshake(k.keys[0]).IsZero()
	if len(k.keys) == 2 {
		k.decide(now, claimed, handshake)
	}
	return slices.Clone(k.keys)
}

// learn takes over the announced keys; one of the known keys stays.
func (k *Keys) learn(now time.Time, claimed Claimed, handshake func(key string) time.Time) {
	switch {
	case len(k.keys) == 0 && claimed.Before != "" && claimed.Before != claimed.Now && handshake(claimed.Now).IsZero():
		k.keys, k.changed = []string{claimed.Before, claimed.Now}, now
	case len(k.keys) == 0:
		k.keys = []string{claimed.Now}
	case slices.Contains(k.keys, claimed.Now):
	case len(k.keys) == 2 && k.agreed:
		k.keys[1] = claimed.Now // does not extend the time of the first key
	default:
		k.keys, k.changed = []string{k.keys[len(k.keys)-1], claimed.Now}, now
	}
}

// decide chooses between two keys as soon as handshakes or time allow.
func (k *Keys) decide(now time.Time, claimed Claimed, handshake func(key string) time.Time) {
	first, second := k.keys[0], k.keys[1]
	other := first // the key that is not announced now
	if first == claimed.Now {
		other = second
	}
	took := handshake(second).After(k.changed)
	switch {
	case took && second == claimed.Now, claimed.Elsewhere(other), now.Sub(k.changed) >= Forgotten:
		k.keys, k.agreed = []string{claimed.Now}, !handshake(claimed.Now).IsZero()
	case took:
		k.keys, k.agreed, k.changed = []string{second, first}, true, now // the announced key comes next
	case first == claimed.Now && k.agreed:
		k.keys = k.keys[:1] // the peer withdrew the new key
	}
}
