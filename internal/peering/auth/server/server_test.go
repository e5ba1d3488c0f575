// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// send sends a request that need not be valid.
func (b *env) send(t *testing.T, method, path string, body any) (int, string, http.Header) {
	t.Helper()
	text, raw := body.(string)
	if !raw {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	response, err := b.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Close {
		response.Header.Set("Connection", "close") // the transport has taken it out
	}
	return response.StatusCode, string(answer), response.Header
}

func TestRequests(t *testing.T) {
	long := strings.Repeat("a", 64)
	id := func(id string) func(*auth.RegistrationRequest) {
		return func(r *auth.RegistrationRequest) { r.Cluster.ClusterID = id }
	}
	name := func(name string) func(*auth.RegistrationRequest) {
		return func(r *auth.RegistrationRequest) { r.Cluster.ClusterName = name }
	}
	after := func(change func(*auth.RegistrationRequest)) func(string) auth.RegistrationRequest {
		return func(challenge string) auth.RegistrationRequest {
			r := wire("key", challenge, nil)
			change(&r)
			return r
		}
	}
	before := func(change func(*auth.RegistrationRequest)) func(string) auth.RegistrationRequest {
		return func(challenge string) auth.RegistrationRequest { return wire("key", challenge, change) }
	}
	good := before(nil)
	proof := func(secret string, r *auth.RegistrationRequest) {
		r.TokenID = auth.TokenID(secret)
		private, clusterKey := newKey("key"), newKey("cluster key")
		r.TokenProof = auth.TokenProof(secret, r.Signed())
		r.Proof, r.ClusterProof = ed25519.Sign(private, r.Signed()), ed25519.Sign(clusterKey, r.Signed())
	}
	with := func(secret string, dryRun bool) func(string) auth.RegistrationRequest {
		return after(func(r *auth.RegistrationRequest) { r.DryRun = dryRun; proof(secret, r) })
	}
	nonce := make([]byte, auth.NonceSize)

	for _, c := range []struct {
		name, method, path string
		body               any
		code               int
		reason             auth.Reason
	}{
		{"ids", "GET", auth.PathIDs, "", 200, ""},
		{"register", "POST", auth.PathIdentity, good, 200, ""},
		{"no authURL", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.AuthURL = "" }), 200, ""},
		{"dry run", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.DryRun = true }), 200, ""},
		{"dry run, wrong token", "POST", auth.PathIdentity, with("a token that is wrong", true), 401, auth.ReasonDenied},
		{"newer peer", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Protocol = auth.Range{Min: 2, Max: 7} }), 200, ""},

		{"wrong token", "POST", auth.PathIdentity, with("a token that is wrong", false), 401, auth.ReasonDenied},
		{"beginning of the token", "POST", auth.PathIdentity, with(goodToken[:63], false), 401, auth.ReasonDenied},
		{"more than the token", "POST", auth.PathIdentity, with(goodToken+"0", false), 401, auth.ReasonDenied},
		{"ID of the token without the secret", "POST", auth.PathIdentity, after(func(r *auth.RegistrationRequest) { r.TokenProof[0]++ }), 401, auth.ReasonDenied},
		{"no proof of the token", "POST", auth.PathIdentity, after(func(r *auth.RegistrationRequest) { r.TokenProof = nil }), 401, auth.ReasonDenied},
		{"empty token", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.TokenID = "" }), 401, auth.ReasonEmptyDenied},

		{"no body", "POST", auth.PathIdentity, "", 400, auth.ReasonInvalid},
		{"null", "POST", auth.PathIdentity, "null", 400, auth.ReasonInvalid},
		{"not JSON", "POST", auth.PathIdentity, "destinationClusterToken=" + goodToken, 400, auth.ReasonInvalid},
		{"two objects", "POST", auth.PathIdentity, mustJSON(wire("key", "x", nil)) + "{}", 400, auth.ReasonInvalid},
		{"other types", "POST", auth.PathIdentity, `{"cluster":"` + goodToken + `"}`, 400, auth.ReasonInvalid},
		{"number for token", "POST", auth.PathIdentity, `{"tokenID":12345678901234567890}`, 400, auth.ReasonInvalid},
		{"key not Base64", "POST", auth.PathIdentity, `{"publicKey":"` + goodToken + `!"}`, 400, auth.ReasonInvalid},
		{"too large", "POST", auth.PathIdentity, strings.Repeat(" ", auth.MaxRequest) + mustJSON(wire("key", "x", nil)), 400, auth.ReasonInvalid},
		{"deep", "POST", auth.PathIdentity, strings.Repeat("[", 60000), 400, auth.ReasonInvalid},
		{"own ID", "POST", auth.PathIdentity, before(id(provider.ClusterID)), 400, auth.ReasonInvalid},
		{"no ID", "POST", auth.PathIdentity, before(id("")), 400, auth.ReasonInvalid},
		{"upper case ID", "POST", auth.PathIdentity, before(id(strings.ToUpper(consumer.ClusterID))), 400, auth.ReasonInvalid},
		{"ID with newline", "POST", auth.PathIdentity, before(id(consumer.ClusterID + "\n")), 400, auth.ReasonInvalid},
		{"ID with path", "POST", auth.PathIdentity, before(id("../../secrets/auth-token-aaaaaaaaaaaa")), 400, auth.ReasonInvalid},
		{"another ID", "POST", auth.PathIdentity, before(id("bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee")), 400, auth.ReasonChallenge},
		{"no name", "POST", auth.PathIdentity, before(name("")), 400, auth.ReasonInvalid},
		{"name in upper case", "POST", auth.PathIdentity, before(name("Rome")), 400, auth.ReasonInvalid},
		{"long name", "POST", auth.PathIdentity, before(name(long)), 400, auth.ReasonInvalid},
		{"longest name", "POST", auth.PathIdentity, before(name(long[1:])), 200, ""},
		{"authURL without TLS", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.AuthURL = "http://rome" }), 400, auth.ReasonInvalid},
		{"authURL with password", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.AuthURL = "https://a:b@rome" }), 400, auth.ReasonInvalid},
		{"no key", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.PublicKey = nil }), 400, auth.ReasonInvalid},
		{"no cluster key", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.ClusterKey = nil }), 400, auth.ReasonInvalid},
		{"short key", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.PublicKey = r.PublicKey[1:] }), 400, auth.ReasonInvalid},
		{
			"key of another", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.PublicKey = clusterkey.Public(newKey("other")) }), 400, auth.ReasonInvalid,
		},
		{
			"cluster key of another", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.ClusterKey = clusterkey.Public(newKey("other")) }), 400, auth.ReasonInvalid,
		},
		{
			"changed after it was signed", "POST", auth.PathIdentity,
			after(func(r *auth.RegistrationRequest) { r.AuthURL = "https://203.0.113.66" }), 401, auth.ReasonDenied,
		},
		{
			"sealed to another key", "POST", auth.PathIdentity,
			after(func(r *auth.RegistrationRequest) { r.Question.SealTo = bytes.Repeat([]byte{8}, auth.SealKeySize) }), 401, auth.ReasonDenied,
		},
		{"no challenge", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Question.Challenge = "" }), 400, auth.ReasonChallenge},
		{
			"invented challenge", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.Question.Challenge = strings.Repeat("A", 75) }), 400, auth.ReasonChallenge,
		},
		{
			"long challenge", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.Question.Challenge = strings.Repeat("A", auth.MaxChallenge+1) }), 400,
			auth.ReasonChallenge,
		},
		{"short nonce", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Question.Nonce = nonce[1:] }), 400, auth.ReasonInvalid},
		{"no key to seal to", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Question.SealTo = nil }), 400, auth.ReasonInvalid},
		{"for another provider key", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) {
			r.Question.Provider = clusterkey.Fingerprint(clusterkey.Public(newKey("other")))
		}), 403, auth.ReasonConflict},
		{"for no provider key", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Question.Provider = "" }), 400, auth.ReasonInvalid},
		{
			"protocol of the future", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.Protocol = auth.Range{Min: 99, Max: 100} }), 400, auth.ReasonVersion,
		},
		{
			"protocol of the past", "POST", auth.PathIdentity,
			`{"cluster":{"clusterID":"` + consumer.ClusterID + `","clusterName":"rome"},"destinationClusterToken":"x","protocol":{"min":1,"max":1}}`,
			400, auth.ReasonVersion,
		},
		{"no protocol", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Protocol = auth.Range{} }), 400, auth.ReasonVersion},
		{
			"protocol backwards", "POST", auth.PathIdentity, before(func(r *auth.RegistrationRequest) { r.Protocol = auth.Range{Min: 2, Max: 1} }),
			400, auth.ReasonInvalid,
		},
		{
			"long token ID", "POST", auth.PathIdentity,
			before(func(r *auth.RegistrationRequest) { r.TokenID = strings.Repeat("x", auth.MaxTokenID+1) }), 400, auth.ReasonInvalid,
		},

		{"challenge", "POST", auth.PathChallenge, auth.ChallengeRequest{ClusterID: consumer.ClusterID, Nonce: nonce}, 200, ""},
		{"challenge of the past", "POST", auth.PathChallenge, `{"clusterID":"` + consumer.ClusterID + `"}`, 400, auth.ReasonVersion},
		{"challenge without a cluster", "POST", auth.PathChallenge, auth.ChallengeRequest{Nonce: nonce}, 400, auth.ReasonInvalid},
		{"challenge with a short nonce", "POST", auth.PathChallenge, auth.ChallengeRequest{ClusterID: consumer.ClusterID, Nonce: nonce[1:]}, 400, auth.ReasonInvalid},
		{"challenge, garbage", "POST", auth.PathChallenge, "\x00\xff", 400, auth.ReasonInvalid},
		{"renewal, garbage", "POST", auth.PathRenewal, `[]`, 400, auth.ReasonInvalid},
		{"renewal, no signature", "POST", auth.PathRenewal, auth.RenewalRequest{ClusterID: consumer.ClusterID, Question: testQuestion("x")}, 400, auth.ReasonInvalid},
		{
			"renewal, no challenge", "POST", auth.PathRenewal,
			auth.RenewalRequest{ClusterID: consumer.ClusterID, Question: testQuestion(""), Signature: make([]byte, 64)},
			400, auth.ReasonChallenge,
		},

		{"wrong method", "POST", auth.PathIDs, "", 405, auth.ReasonMethod},
		{"wrong method", "GET", auth.PathIdentity, "", 405, auth.ReasonMethod},
		{"wrong path", "GET", "/", "", 404, auth.ReasonNotFound},
		{"path that is almost right", "GET", "/ids/", "", 404, auth.ReasonNotFound},
		{"path that climbs", "GET", "/x/../ids", "", 404, auth.ReasonNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newEnv(t, nil)
			registers := false
			if build, ok := c.body.(func(string) auth.RegistrationRequest); ok {
				request := build(b.newChallenge(t, consumer))
				c.body, registers = request, c.code == 200 && !request.DryRun
			}
			code, answer, header := b.send(t, c.method, c.path, c.body)
			if code != c.code {
				t.Fatalf("%d %s; want %d", code, answer, c.code)
			}
			if header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers: %v", header)
			}
			if (c.reason == auth.ReasonDenied || c.reason == auth.ReasonEmptyDenied) && header.Get("Connection") != "close" {
				t.Errorf("after a wrong token, the connection carries more: %v", header)
			}
			if strings.Contains(answer, goodToken) {
				t.Errorf("the answer repeats the token: %s", answer)
			}
			if c.code != 200 {
				var refusal auth.Error
				if err := json.Unmarshal([]byte(answer), &refusal); err != nil || refusal.Code != c.code || refusal.Reason != c.reason || refusal.Message == "" {
					t.Errorf("%s; want reason %s (%v)", answer, c.reason, err)
				}
			}
			if (len(b.peers.pins) > 0) != registers || !registers && b.peers.calls > 0 && c.reason != auth.ReasonEmptyDenied {
				t.Errorf("%d keys were pinned, in %d calls", len(b.peers.pins), b.peers.calls)
			}
		})
	}
}

func mustJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestToken(t *testing.T) {
	for _, c := range []struct {
		name, token, secret string
		failure             error
		disabled            bool
		want                error
	}{
		{name: "right", token: goodToken, secret: goodToken},
		{name: "wrong", token: "a token that is wrong", secret: goodToken, want: auth.ErrDenied},
		{name: "empty", secret: goodToken, want: auth.ErrEmptyDenied},
		{name: "empty, authentication off", secret: goodToken, disabled: true},
		{name: "wrong, authentication off", token: "wrong", secret: goodToken, disabled: true, want: auth.ErrDenied},
		{name: "empty Secret", token: "anything", want: auth.ErrUnavailable},
		{name: "Secret not readable", token: goodToken, failure: errors.New("no API server"), want: auth.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newEnv(t, func(o *Options) { o.EnableAuthentication = !c.disabled })
			b.tokens.set(c.secret, c.failure)
			r := registration("key")
			r.Secret = c.token
			for _, r.DryRun = range []bool{true, false} {
				grant, err := b.client.Register(t.Context(), r)
				if !errors.Is(err, c.want) || (grant.Token != "") != (err == nil && !r.DryRun) {
					t.Errorf("dry run %v: %v, %v; want %v", r.DryRun, grant.Namespace, err, c.want)
				}
			}
		})
	}
	t.Run("replaced", func(t *testing.T) {
		b := newEnv(t, nil)
		b.tokens.set("another-token-from-now-on", nil)
		if _, err := b.client.Register(t.Context(), registration("key")); !errors.Is(err, auth.ErrDenied) {
			t.Errorf("the old token: %v", err)
		}
		r := registration("key")
		r.Secret = "another-token-from-now-on"
		if _, err := b.client.Register(t.Context(), r); err != nil {
			t.Errorf("the new token: %v", err)
		}
	})
}

func TestRegisterAgain(t *testing.T) {
	b := newEnv(t, nil)
	first, err := b.client.Register(t.Context(), registration("key"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.client.Register(t.Context(), registration("key"))
	if err != nil || second.Namespace != first.Namespace || second.Token == first.Token {
		t.Errorf("same key: %v, %v", second.Namespace, err)
	}
	var refusal *auth.Error
	_, err = b.client.Register(t.Context(), registration("another"))
	if !errors.Is(err, auth.ErrConflict) || !errors.As(err, &refusal) || refusal.Reason != auth.ReasonConflict ||
		!strings.Contains(err.Error(), "liqoctl unpeer out-of-band rome") {
		t.Errorf("another key: %v", err)
	}
	renamed := registration("key")
	renamed.Cluster.ClusterName = "paris"
	if _, err = b.client.Register(t.Context(), renamed); !errors.Is(err, auth.ErrInvalid) ||
		!strings.Contains(err.Error(), "rome") || !strings.Contains(err.Error(), "paris") {
		t.Errorf("another name: %v", err)
	}
	sameNamed := registration("third")
	sameNamed.Cluster.ClusterID = "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	if other, err := b.client.Register(t.Context(), sameNamed); err != nil || other.Namespace == first.Namespace {
		t.Errorf("another cluster of the same name: %v, %v", other.Namespace, err)
	}
	wrong := registration("key")
	wrong.Secret = "a token that is wrong"
	if _, err := b.client.Register(t.Context(), wrong); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("the pinned key is no token: %v", err)
	}
	for seed, want := range map[string]error{"key": nil, "another": auth.ErrEmptyDenied} {
		without := registration(seed)
		without.Secret = ""
		if _, err := b.client.Register(t.Context(), without); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("without a token, with key %q: %v, want %v", seed, err, want)
		}
	}
}

// A cluster that this one uses registers without a token: with the key that it has as our provider, and no other.
func TestProviderRegisters(t *testing.T) {
	b := newEnv(t, nil)
	reverse := registration("key")
	reverse.Secret = ""
	if _, err := b.client.Register(t.Context(), reverse); !errors.Is(err, auth.ErrEmptyDenied) {
		t.Errorf("a cluster that we do not use: %v", err)
	}
	thief := reverse
	thief.ClusterKey = newKey("another cluster")
	b.peers.providers = map[string]string{consumer.ClusterID: clusterkey.Fingerprint(clusterkey.Public(reverse.ClusterKey))}
	if _, err := b.client.Register(t.Context(), thief); !errors.Is(err, auth.ErrEmptyDenied) {
		t.Errorf("another key under the ID of a provider: %v", err)
	}
	// The public key alone is known to each of its peers.
	forged := wire("key", b.newChallenge(t, consumer), func(r *auth.RegistrationRequest) { r.TokenID, r.TokenProof = "", nil })
	forged.ClusterKey = clusterkey.Public(reverse.ClusterKey)
	forged.ClusterProof = ed25519.Sign(newKey("another cluster"), forged.Signed())
	if code, answer, _ := b.send(t, "POST", auth.PathIdentity, forged); code != 400 || !strings.Contains(answer, "clusterProof") {
		t.Errorf("without the private key: %d %s", code, answer)
	}
	if len(b.peers.pins) > 0 {
		t.Fatalf("pinned: %v", b.peers.pins)
	}
	if _, err := b.client.Register(t.Context(), reverse); err != nil {
		t.Errorf("a provider: %v", err)
	}
}

// A copy of a registration, captured where TLS is terminated, gives no second token.
func TestCapturedRegistration(t *testing.T) {
	b := newEnv(t, nil)
	captured := wire("key", b.newChallenge(t, consumer), nil)
	if code, answer, _ := b.send(t, "POST", auth.PathIdentity, captured); code != 200 {
		t.Fatal(code, answer)
	}
	if code, answer, _ := b.send(t, "POST", auth.PathIdentity, captured); code != 400 || !strings.Contains(answer, string(auth.ReasonChallenge)) {
		t.Errorf("repeated: %d %s", code, answer)
	}
	if code, answer, _ := b.send(t, "POST", auth.PathIdentity, wire("key", b.newChallenge(t, consumer), nil)); code != 200 {
		t.Errorf("with another challenge: %d %s", code, answer)
	}
	// A challenge that is added later does not match the proof.
	captured.Question.Challenge = b.newChallenge(t, consumer)
	if code, _, _ := b.send(t, "POST", auth.PathIdentity, captured); code != 401 {
		t.Errorf("with a challenge put in: %d", code)
	}
}

func (b *env) newChallenge(t *testing.T, cluster discoveryv1alpha1.ClusterIdentity) string {
	t.Helper()
	code, text, _ := b.send(t, "POST", auth.PathChallenge, auth.ChallengeRequest{
		ClusterID: cluster.ClusterID, Provider: milan.Fingerprint, Nonce: make([]byte, auth.NonceSize),
	})
	var answer auth.ChallengeAnswer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	logged.secret(answer.Challenge)
	return answer.Challenge
}

func renewal(cluster discoveryv1alpha1.ClusterIdentity, challenge string, key ed25519.PrivateKey) auth.RenewalRequest {
	r := auth.RenewalRequest{ClusterID: cluster.ClusterID, Question: testQuestion(challenge)}
	r.Signature = ed25519.Sign(key, r.Signed())
	logged.secret(base64.StdEncoding.EncodeToString(r.Signature))
	return r
}

func TestRenewal(t *testing.T) {
	b := newEnv(t, nil)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	b.tokens.set("", errors.New("the shared token takes no part in renewal"))
	private := newKey("key")
	if grant, err := b.client.Renew(t.Context(), milan, consumer, private); err != nil || grant.Lifetime != time.Hour {
		t.Fatalf("%v, %v", grant.Lifetime, err)
	}
	other := consumer
	other.ClusterID = "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee"

	captured := renewal(consumer, b.newChallenge(t, consumer), private)
	late := renewal(consumer, b.newChallenge(t, consumer), private)
	unused := b.newChallenge(t, consumer)
	for _, c := range []struct {
		name    string
		request auth.RenewalRequest
		wait    time.Duration
		code    int
		reason  auth.Reason
	}{
		{"fresh", captured, 0, 200, ""},
		{"replayed", captured, 0, 400, auth.ReasonChallenge},
		{"just in time", renewal(consumer, unused, private), 59 * time.Second, 200, ""},
		{"expired", late, 2 * time.Second, 400, auth.ReasonChallenge},
		{"replayed when expired", captured, time.Hour, 400, auth.ReasonChallenge},
		{"another key", renewal(consumer, b.newChallenge(t, consumer), newKey("another")), 0, 400, auth.ReasonChallenge},
		{"challenge of another cluster", renewal(consumer, b.newChallenge(t, other), private), 0, 400, auth.ReasonChallenge},
		{"invented challenge", renewal(consumer, strings.Repeat("A", len(unused)), private), 0, 400, auth.ReasonChallenge},
	} {
		b.clock.advance(c.wait)
		if code, answer, _ := b.send(t, "POST", auth.PathRenewal, c.request); code != c.code || !strings.Contains(answer, string(c.reason)) {
			t.Errorf("%s: %d %s; want %d %s", c.name, code, answer, c.code, c.reason)
		}
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, newKey("another")); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("another key: %v", err)
	}
	if _, err := b.client.Renew(t.Context(), milan, other, private); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("an unregistered cluster: %v", err)
	}
	// A failed signature does not use the challenge up: otherwise a client that captured it could block a renewal.
	text := b.newChallenge(t, consumer)
	if code, _, _ := b.send(t, "POST", auth.PathRenewal, renewal(consumer, text, newKey("another"))); code != 403 {
		t.Errorf("another key: %d", code)
	}
	if code, answer, _ := b.send(t, "POST", auth.PathRenewal, renewal(consumer, text, private)); code != 200 {
		t.Errorf("after another key: %d %s", code, answer)
	}
	b.peers.revoked[consumer.ClusterID] = true
	var refusal *auth.Error
	if _, err := b.client.Renew(t.Context(), milan, consumer, private); !errors.Is(err, auth.ErrConflict) ||
		!errors.As(err, &refusal) || refusal.Reason != auth.ReasonRevoked {
		t.Errorf("revoked: %v", err)
	}
}

// TestRenewalRace: of concurrent renewals with the same challenge one succeeds.
func TestRenewalRace(t *testing.T) {
	b := newEnv(t, nil)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	before := b.peers.grants
	request := renewal(consumer, b.newChallenge(t, consumer), newKey("key"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { b.send(t, "POST", auth.PathRenewal, request) })
	}
	all.Wait()
	if got := b.peers.grants - before; got != 1 {
		t.Errorf("one challenge was good for %d tokens", got)
	}
}

// TestRenewalMeetsAnotherServer: after a restart, or at another replica, the challenge is invalid and the client gets a new one.
func TestRenewalMeetsAnotherServer(t *testing.T) {
	a, b := newEnv(t, nil), newEnv(t, nil)
	b.peers = a.peers
	b.options.Peers = a.peers
	turn := 0
	url, _ := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn++
		if turn <= 3 && turn%2 == 0 {
			b.Server.ServeHTTP(w, r)
			return
		}
		a.Server.ServeHTTP(w, r)
	}), time.Now)
	if _, err := a.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, url).Renew(t.Context(), milan, consumer, newKey("key")); err != nil || turn < 4 {
		t.Errorf("%v after %d requests", err, turn)
	}
}

func TestRateLimit(t *testing.T) {
	b := newEnv(t, nil)
	wrong := registration("key")
	wrong.Secret = "a token that is wrong"
	var err error
	attempts := 0
	for ; attempts < 50 && !errors.Is(err, auth.ErrTooMany); attempts++ {
		_, err = b.client.Register(t.Context(), wrong)
	}
	var refusal *auth.Error
	if !errors.As(err, &refusal) || refusal.RetryAfter <= 0 || attempts > contactPace.Burst/10+1 {
		t.Fatalf("after %d wrong tokens: %v", attempts, err)
	}
	if _, err := b.client.Register(t.Context(), registration("key")); !errors.Is(err, auth.ErrTooMany) {
		t.Errorf("the right token must wait as well: %v", err)
	}
	if b.tokens.reads >= attempts {
		t.Errorf("a refused request read the Secret")
	}
	if _, err := b.client.IDs(t.Context()); err != nil {
		t.Errorf("other requests have their own limit: %v", err)
	}
	b.clock.advance(refusal.RetryAfter)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Errorf("after %s: %v", refusal.RetryAfter, err)
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, newKey("key")); err != nil {
		t.Errorf("renewal: %v", err)
	}
}

// TestRenewalHasItsOwnLimit: other requests from the same address keep no peer from renewing.
func TestRenewalHasItsOwnLimit(t *testing.T) {
	b := newEnv(t, nil)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 2 * otherPace.Burst {
		if _, err = b.client.IDs(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, auth.ErrTooMany) {
		t.Fatalf("%d requests are admitted: %v", 2*otherPace.Burst, err)
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, newKey("key")); err != nil {
		t.Errorf("renewal: %v", err)
	}
}

// TestSlowBody: a body that does not arrive is refused.
func TestSlowBody(t *testing.T) {
	b := newEnv(t, nil)
	address, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := tls.Dial("tcp", address.Host, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\n\r\n{", auth.PathIdentity, address.Host)
	_ = connection.SetReadDeadline(time.Now().Add(10 * bodyDeadline)) // against hanging
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("answered with %s", answer.Status)
	}
}

// TestNothingSecretIsLogged: each request has one log line, with the peer and the result, and no secret.
func TestNothingSecretIsLogged(t *testing.T) {
	b := newEnv(t, nil)
	before := logged.size()
	challenge := b.newChallenge(t, consumer)
	b.send(t, "POST", auth.PathIdentity, wire("key", challenge, nil))
	b.send(t, "POST", auth.PathIdentity, strings.Replace(mustJSON(wire("key", challenge, nil)), `"rome"`, `"`+goodToken+`"`, 1))
	b.send(t, "POST", auth.PathRenewal, renewal(consumer, b.newChallenge(t, consumer), newKey("key")))
	b.send(t, "GET", "/"+goodToken, "")
	b.send(t, "GET", "/ids?token="+goodToken, "")
	logged.mu.Lock()
	lines := bytes.Split(bytes.TrimSpace(logged.text.Bytes()[before:]), []byte("\n"))
	logged.mu.Unlock()
	if len(lines) != 7 {
		t.Errorf("%d lines for 7 requests: %s", len(lines), lines)
	}
	if first := string(lines[1]); !strings.Contains(first, consumer.ClusterID) || !strings.Contains(first, `"code"=200`) {
		t.Error(first)
	}
	if leaks := logged.leaks(); len(leaks) > 0 {
		t.Errorf("in the logs: %v", leaks)
	}
}

func TestNewServerChecksWhoItIs(t *testing.T) {
	for _, identity := range []discoveryv1alpha1.ClusterIdentity{
		{}, {ClusterID: "1", ClusterName: "milan"}, {ClusterID: provider.ClusterID}, {ClusterID: provider.ClusterID, ClusterName: "Milan!"},
	} {
		if _, err := New(Options{Cluster: identity}); err == nil {
			t.Errorf("%v passed", identity)
		}
	}
}
