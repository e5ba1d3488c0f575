// SPDX-License-Identifier: Apache-2.0

// Package challenge makes something to sign that is good once, for one cluster, and for a minute, and recognises it.
// It remembers only what was used.
//
// It must not know what is signed, nor by whom; the time comes in. TestChallenge and FuzzCheck prove it.
package challenge

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// Lifetime of a challenge.
	Lifetime = 60 * time.Second
	// maxSpent bounds what is remembered. Only who holds a pinned key can add to it.
	maxSpent = 4096

	nonceBytes = 16
	ageBytes   = 8
	size       = nonceBytes + ageBytes + sha256.Size
)

// Maker makes challenges. A challenge is kept nowhere until it is used: it carries its own
// age and a mark that only this process can make. After a restart all are void, and clients ask again.
type Maker struct {
	key [sha256.Size]byte
	// start makes ages relative: a wall clock that is set anew changes none of them.
	start time.Time

	mu    sync.Mutex
	spent map[Nonce]time.Time // until when it must be remembered
}

// Nonce tells challenges apart.
type Nonce [nonceBytes]byte

// New returns a maker whose challenges no other one accepts.
func New(now time.Time) *Maker {
	c := &Maker{start: now, spent: map[Nonce]time.Time{}}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

var encoding = base64.RawURLEncoding.Strict()

// Issue makes a challenge for one cluster.
func (c *Maker) Issue(clusterID string, now time.Time) string {
	raw := make([]byte, nonceBytes, size)
	_, _ = rand.Read(raw) // never fails
	raw = binary.BigEndian.AppendUint64(raw, uint64(now.Sub(c.start)))
	return encoding.EncodeToString(append(raw, c.mark(raw, clusterID)...))
}

func (c *Maker) mark(unmarked []byte, clusterID string) []byte {
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write(unmarked) // always as long, so that it cannot reach into the ID
	mac.Write([]byte(clusterID))
	return mac.Sum(nil)
}

// Check says whether a challenge was made here, for this cluster, not long ago, and was not used.
func (c *Maker) Check(text, clusterID string, now time.Time) (Nonce, bool) {
	raw, ok := parse(text)
	if !ok || !hmac.Equal(raw[nonceBytes+ageBytes:], c.mark(raw[:nonceBytes+ageBytes], clusterID)) {
		return Nonce{}, false
	}
	made := time.Duration(binary.BigEndian.Uint64(raw[nonceBytes:]))
	age := now.Sub(c.start) - made
	which := Nonce(raw[:nonceBytes])
	c.mu.Lock()
	defer c.mu.Unlock()
	_, used := c.spent[which]
	return which, age >= 0 && age < Lifetime && !used
}

// Spend uses a challenge that was checked. The second to spend it is refused, also at the same time.
func (c *Maker) Spend(which Nonce, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, until := range c.spent {
		if !now.Before(until) {
			delete(c.spent, other)
		}
	}
	if _, used := c.spent[which]; used || len(c.spent) >= maxSpent {
		return false
	}
	// It expires sooner; this is the simplest time that is surely not too early.
	c.spent[which] = now.Add(Lifetime)
	return true
}

func parse(text string) ([]byte, bool) {
	if len(text) != encoding.EncodedLen(size) {
		return nil, false
	}
	raw, err := encoding.DecodeString(text)
	return raw, err == nil && len(raw) == size
}
