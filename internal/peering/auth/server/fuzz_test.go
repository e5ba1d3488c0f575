// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ed25519"
	"net/http"
	"strings"
	"testing"

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// No body causes a panic, and each accepted one can be written into objects.
func FuzzParseRegistration(f *testing.F) {
	good := mustJSON(wire("key", "x", nil))
	for _, seed := range []string{
		good, "", "null", "{}", "[]", good[:len(good)/2], good + good,
		strings.Replace(good, "rome", "ROME", 1), strings.Replace(good, consumer.ClusterID, provider.ClusterID, 1),
		strings.Replace(good, `"min":2`, `"min":-9223372036854775808`, 1), strings.Replace(good, `"cluster"`, `"CLUSTER"`, 1),
		strings.Replace(good, "https://", `https:\/\/\u0000`, 1), `{"publicKey":[1,2,3]}`, `{"proof":"===="}`, "\xff\xfe{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, refusal := auth.ParseRegistration(body, provider)
		if refusal != nil {
			if refusal.Code != http.StatusBadRequest || refusal.Message == "" {
				t.Errorf("%+v", refusal)
			}
			return
		}
		q := r.Question
		if r.Cluster.ClusterID == provider.ClusterID || !clusterkey.IsFingerprint(q.Provider) || q.Challenge == "" || len(q.Challenge) > auth.MaxChallenge ||
			len(q.Nonce) != auth.NonceSize || len(q.SealTo) != auth.SealKeySize {
			t.Errorf("passed: %+v", r.Cluster)
		}
		pin := auth.Pin{Cluster: r.Cluster, Key: r.PublicKey, ClusterKey: r.ClusterKey, AuthURL: r.AuthURL}
		back, err := auth.ParsePin(pin.ConfigMap("liqo"))
		if err != nil || back.Cluster != pin.Cluster || !back.Key.Equal(pin.Key) || back.AuthURL != pin.AuthURL {
			t.Errorf("what was written is read as %+v, %v", back, err)
		}
		by := r.Replacement(provider.ClusterID)
		if read, err := auth.ParseReplacement(by.ConfigMap("liqo")); err != nil || !read.Done(pin) || len(read.Proofs) != len(r.Replaces) {
			t.Errorf("what was written is read as %+v, %v", read, err)
		}
	})
}

func FuzzParseRenewal(f *testing.F) {
	good := mustJSON(renewal(consumer, "x", newKey("key")))
	for _, seed := range []string{
		good, "", "null", "{}", `{"clusterID":"` + consumer.ClusterID + `"}`, good[:40],
		strings.Replace(good, `"x"`, strings.Repeat("A", 300), 1),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, refusal := auth.ParseRenewal(body); refusal == nil && (auth.CheckClusterID(r.ClusterID) != nil ||
			len(r.Signature) != ed25519.SignatureSize || len(r.Question.Challenge) > auth.MaxChallenge) {
			t.Errorf("passed: %+v", r)
		}
		if r, refusal := auth.ParseChallengeRequest(body); refusal == nil && auth.CheckClusterID(r.ClusterID) != nil {
			t.Errorf("passed: %+v", r)
		}
	})
}
