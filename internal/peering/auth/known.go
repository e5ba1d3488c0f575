// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/ed25519"
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"liqo.io/liqo/internal/kube/clusterkey"
	kuberatelimit "liqo.io/liqo/internal/kube/ratelimit"
)

const (
	// maxKnown bounds memory, and knownFor is longer than the time between two renewals.
	maxKnown, knownFor = 4096, 3 * time.Hour
	// A known cluster may ask knownBurst times at once, and then once a second. A renewal takes two requests.
	knownBurst = 30
	// proofAge is how far the clock of a cluster may differ. Its address counts otherwise.
	proofAge = 5 * time.Minute
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

// prover returns the known cluster whose key signed the body of a request, empty if there is none.
func (k *known) prover(path string, body []byte, now time.Time) string {
	var request struct {
		challengeRequest
		Question  question `json:"question"`
		Signature []byte   `json:"signature"`
	}
	if json.Unmarshal(body, &request) != nil {
		return ""
	}
	found, _ := k.keys.Get(request.ClusterID)
	key, is := found.(ed25519.PublicKey)
	if !is {
		return ""
	}
	switch path {
	case pathChallenge:
		if request.proves(key, now) {
			return request.ClusterID
		}
	case pathRenewal:
		renewal := renewalRequest{ClusterID: request.ClusterID, Question: request.Question}
		if ed25519.Verify(key, renewal.signed(), request.Signature) {
			return request.ClusterID
		}
	}
	return ""
}

// prove signs the request for a challenge with the pinned key of the consumer.
func (r *challengeRequest) prove(ours ed25519.PrivateKey, now time.Time) {
	r.Time = now.Unix()
	r.Proof = ed25519.Sign(ours, r.signed())
}

// proves reports whether the request is signed with a key, and recent. Who repeats one that is not his gains what its sender may ask for.
func (r challengeRequest) proves(key ed25519.PublicKey, now time.Time) bool {
	return now.Sub(time.Unix(r.Time, 0)).Abs() <= proofAge && ed25519.Verify(key, r.signed(), r.Proof)
}

func (r challengeRequest) signed() []byte {
	return clusterkey.Message("liqo.io/auth/known/v1", []byte(r.ClusterID), []byte(r.Provider), r.Nonce, []byte(strconv.FormatInt(r.Time, 10)))
}
