// SPDX-License-Identifier: Apache-2.0

// Package challenge issues and checks challenges: values to sign that are valid once, for one cluster, and for a minute.
// It stores only used challenges.
//
// It must not know what is signed, nor by whom. The caller passes the time. The proofs are TestChallenge and FuzzCheck.
package challenge

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"sync"
	"time"
)

const (
	// Lifetime of a challenge.
	Lifetime = 60 * time.Second
	// maxSpent bounds the stored challenges of one owner: who holds a pinned key, or a token.
	maxSpent = 256

	nonceBytes = 16
	ageBytes   = 8
	size       = nonceBytes + ageBytes + sha256.Size
)

// Maker issues challenges. An unused challenge is not stored: it contains its age and a MAC with a key of this process.
// After a restart all are invalid, and clients request new ones.
type Maker struct {
	key [sha256.Size]byte
	// start makes ages relative, so that setting the wall clock changes none of them.
	start time.Time

	mu    sync.Mutex
	spent map[string]map[Nonce]time.Time // by owner, until when each must be stored
}

// Nonce identifies a challenge.
type Nonce [nonceBytes]byte

// New returns a maker with its own key: no other maker accepts its challenges.
func New(now time.Time) *Maker {
	c := &Maker{start: now, spent: map[string]map[Nonce]time.Time{}}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

var encoding = base64.RawURLEncoding.Strict()

// Issue makes a challenge for one cluster.
func (c *Maker) Issue(clusterID string, now time.Time) string {
	raw := make([]byte, nonceBytes, size)
	_, _ = rand.Read(raw) // never fails
	raw = binary.BigEndian.AppendUint64(raw, uint64(now.Sub(c.start)))
	return encoding.EncodeToString(append(raw, c.mac(raw, clusterID)...))
}

func (c *Maker) mac(message []byte, clusterID string) []byte {
	hash := hmac.New(sha256.New, c.key[:])
	hash.Write(message) // of fixed length, so that its end cannot be part of an ID
	hash.Write([]byte(clusterID))
	return hash.Sum(nil)
}

// Check reports whether a challenge was issued by this maker, for this cluster, within Lifetime, and is unused.
func (c *Maker) Check(text, clusterID string, now time.Time) (Nonce, bool) {
	raw, ok := parse(text)
	if !ok || !hmac.Equal(raw[nonceBytes+ageBytes:], c.mac(raw[:nonceBytes+ageBytes], clusterID)) {
		return Nonce{}, false
	}
	made := time.Duration(binary.BigEndian.Uint64(raw[nonceBytes:]))
	age := now.Sub(c.start) - made
	which := Nonce(raw[:nonceBytes])
	c.mu.Lock()
	defer c.mu.Unlock()
	return which, age >= 0 && age < Lifetime && !c.used(which)
}

// Spend uses a checked challenge. It returns true once per challenge, even for concurrent calls. Owner is the key or token with which its use was proven:
// one that uses up its share takes nothing from the others.
func (c *Maker) Spend(which Nonce, owner string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, all := range c.spent {
		maps.DeleteFunc(all, func(_ Nonce, until time.Time) bool { return !now.Before(until) })
		if len(all) == 0 {
			delete(c.spent, other)
		}
	}
	if c.used(which) || len(c.spent[owner]) >= maxSpent {
		return false
	}
	if c.spent[owner] == nil {
		c.spent[owner] = map[Nonce]time.Time{}
	}
	// It expires earlier; this bound is simple and never too early.
	c.spent[owner][which] = now.Add(Lifetime)
	return true
}

func (c *Maker) used(which Nonce) bool {
	for _, all := range c.spent {
		if _, used := all[which]; used {
			return true
		}
	}
	return false
}

func parse(text string) ([]byte, bool) {
	if len(text) != encoding.EncodedLen(size) {
		return nil, false
	}
	raw, err := encoding.DecodeString(text)
	return raw, err == nil && len(raw) == size
}
