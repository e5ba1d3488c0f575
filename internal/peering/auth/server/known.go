// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ed25519"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	kuberatelimit "liqo.io/liqo/internal/kube/ratelimit"
)

const (
	// maxKnown bounds memory, and knownFor is longer than the time between two renewals.
	maxKnown, knownFor = 4096, 3 * time.Hour
	// A known cluster may ask knownBurst times at once, and then once a second. A renewal takes two requests.
	knownBurst = 30
)

// known are the clusters that have renewed their identities at this process. They are admitted whatever others ask from the same address or in total. It
// needs no request to the API server: it decides nothing but who waits.
type known struct {
	keys *cache.LRUExpireCache
	pace *kuberatelimit.Limiter[string]
}

func newKnown() *known {
	return &known{cache.NewLRUExpireCache(maxKnown), kuberatelimit.New[string](1, knownBurst, maxKnown)}
}

// learn records the pinned key with which a cluster has just renewed its identity.
func (k *known) learn(peer string, key ed25519.PublicKey) { k.keys.Add(peer, key, knownFor) }

// proof is a request whose signature proves which cluster has sent it.
type proof interface {
	From() string
	Proves(key ed25519.PublicKey, now time.Time) bool
}

// prover returns the known cluster whose key signed a request, empty if there is none.
func (k *known) prover(request proof, now time.Time) string {
	found, _ := k.keys.Get(request.From())
	if key, ok := found.(ed25519.PublicKey); ok && request.Proves(key, now) {
		return request.From()
	}
	return ""
}
