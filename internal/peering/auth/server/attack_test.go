// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/client"
)

// middle is a machine between consumer and provider: it forwards requests, reads all that passes, and may change or replace answers.
type middle struct {
	mu      sync.Mutex
	passed  []byte
	changed int // bodies that it has changed or replaced
	// question changes the body of a request, answer that of an answer; nil leaves it.
	question, answer func(path string, body []byte) []byte
}

// between returns a client whose provider is reached through a middle.
func (b *env) between(t *testing.T, m *middle) *client.Client {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.record(body)
		if m.question != nil {
			body = m.change(m.question, r.URL.Path, body)
		}
		request, err := http.NewRequestWithContext(r.Context(), r.Method, b.url+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		response, err := b.http.Do(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		m.record(text)
		if m.answer != nil && response.StatusCode == http.StatusOK {
			text = m.change(m.answer, r.URL.Path, text)
		}
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return dial(t, server.URL)
}

// change applies one of the middle's functions, and counts what it really changed.
func (m *middle) change(function func(string, []byte) []byte, path string, body []byte) []byte {
	after := function(path, body)
	if !bytes.Equal(after, body) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changed++
	}
	return after
}

func (m *middle) record(text []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed = append(append(m.passed, text...), '\n')
}

// edit decodes JSON, lets a function change it, and encodes it again.
func edit[T any](body []byte, change func(*T)) []byte {
	var value T
	if json.Unmarshal(body, &value) != nil {
		return body
	}
	change(&value)
	text, _ := json.Marshal(value)
	return text
}

// TestAttackC1: a machine in the middle, at first contact and at renewal, learns neither the token of first contact nor the one of the grant, and
// the consumer accepts nothing that it changed.
func TestAttackC1(t *testing.T) {
	thief := newKey("thief")
	forge := func(change func(*auth.GrantAnswer)) func(string, []byte) []byte {
		return func(path string, body []byte) []byte {
			if path == auth.PathChallenge {
				return body
			}
			return edit(body, change)
		}
	}
	for name, attack := range map[string]*middle{
		"swaps the URL":       {answer: forge(func(a *auth.GrantAnswer) { a.APIServerURL = "https://192.0.2.66:6443" })},
		"swaps the CA":        {answer: forge(func(a *auth.GrantAnswer) { a.APIServerCA = []byte("-----BEGIN CERTIFICATE-----") })},
		"swaps the namespace": {answer: forge(func(a *auth.GrantAnswer) { a.Namespace = "kube-system" })},
		"extends the life":    {answer: forge(func(a *auth.GrantAnswer) { a.ExpiresIn *= 2 })},
		"swaps the token":     {answer: forge(func(a *auth.GrantAnswer) { a.SealedToken = append([]byte{1}, a.SealedToken...) })},
		"signs with its key":  {answer: forge(func(a *auth.GrantAnswer) { a.Signature = ed25519.Sign(thief, []byte("x")) })},
		"claims to succeed": {answer: forge(func(a *auth.GrantAnswer) {
			s := auth.Successor{Key: clusterkey.Public(thief)}
			s.Signature = ed25519.Sign(thief, s.Signed())
			a.Successor = &s
		})},
		"presents its key": {answer: func(path string, body []byte) []byte {
			if path != auth.PathChallenge {
				return body
			}
			return edit(body, func(a *auth.ChallengeAnswer) {
				a.ProviderKey = clusterkey.Public(thief)
				a.Signature = ed25519.Sign(thief, a.Signed(auth.ChallengeRequest{ClusterID: consumer.ClusterID, Nonce: make([]byte, auth.NonceSize)}))
			})
		}},
		"has no signature of the key": {answer: func(path string, body []byte) []byte {
			if path != auth.PathChallenge {
				return body
			}
			return edit(body, func(a *auth.ChallengeAnswer) { a.Signature = ed25519.Sign(thief, []byte("x")) })
		}},
		"seals to its own key": {question: func(path string, body []byte) []byte {
			mine, _ := auth.NewSealingKey()
			switch path {
			case auth.PathIdentity:
				return edit(body, func(r *auth.RegistrationRequest) { r.Question.SealTo = mine.Public() })
			case auth.PathRenewal:
				return edit(body, func(r *auth.RenewalRequest) { r.Question.SealTo = mine.Public() })
			}
			return body
		}},
		"registers its own keys": {question: func(path string, body []byte) []byte {
			if path != auth.PathIdentity {
				return bytes.ReplaceAll(body, []byte(`"signature":"`), []byte(`"signature":"AA`))
			}
			return edit(body, func(r *auth.RegistrationRequest) {
				r.PublicKey, r.ClusterKey = clusterkey.Public(thief), clusterkey.Public(thief)
				r.Proof, r.ClusterProof = ed25519.Sign(thief, r.Signed()), ed25519.Sign(thief, r.Signed())
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t, nil)
			client := b.between(t, attack)
			if grant, err := client.Register(t.Context(), registration("key")); err == nil {
				t.Errorf("first contact: %+v", grant)
			}
			if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
				t.Fatalf("without the middle: %v", err)
			}
			if grant, err := client.Renew(t.Context(), milan, consumer, newKey("key")); err == nil {
				t.Errorf("renewal: %+v", grant)
			}
			// The first contact fails before the renewal is reached, so both must have met the attack.
			if attack.changed < 2 {
				t.Errorf("the middle changed %d bodies, want one of the first contact and one of the renewal: this row attacks nothing", attack.changed)
			}
			if pin := b.peers.pins[consumer.ClusterID]; !pin.Key.Equal(clusterkey.Public(newKey("key"))) {
				t.Error("the middle's key is pinned")
			}
			for _, secret := range []string{goodToken, "bearer-"} {
				if bytes.Contains(attack.passed, []byte(secret)) {
					t.Errorf("%q passed in the clear: %s", secret, attack.passed)
				}
			}
		})
	}
	t.Run("only listens", func(t *testing.T) {
		b, m := newEnv(t, nil), &middle{}
		client := b.between(t, m)
		grant, err := client.Register(t.Context(), registration("key"))
		if err != nil || grant.Token == "" || clusterkey.Fingerprint(grant.ProviderKey) != milan.Fingerprint {
			t.Fatalf("%+v, %v", grant, err)
		}
		if grant, err = client.Renew(t.Context(), milan, consumer, newKey("key")); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{goodToken, "bearer-", grant.Token} {
			if bytes.Contains(m.passed, []byte(secret)) {
				t.Errorf("%q passed in the clear", secret)
			}
		}
		// Nor can it use what it recorded: every request counts once.
		for line := range bytes.Lines(m.passed) {
			for _, path := range []string{auth.PathIdentity, auth.PathRenewal} {
				if code, answer, _ := b.send(t, "POST", path, string(line)); code == 200 {
					t.Errorf("%s repeated: %s", path, answer)
				}
			}
		}
	})
	t.Run("replays an older grant of the same provider", func(t *testing.T) {
		for path, again := range map[string]func(*client.Client) error{
			auth.PathIdentity: func(client *client.Client) error {
				_, err := client.Register(t.Context(), registration("key"))
				return err
			},
			auth.PathRenewal: func(client *client.Client) error {
				_, err := client.Renew(t.Context(), milan, consumer, newKey("key"))
				return err
			},
		} {
			b, m := newEnv(t, nil), &middle{}
			client := b.between(t, m)
			if _, err := client.Register(t.Context(), registration("key")); err != nil {
				t.Fatal(err)
			}
			if err := again(client); err != nil {
				t.Fatalf("%s, with the middle only listening: %v", path, err)
			}
			lines := bytes.Split(bytes.TrimSpace(m.passed), []byte("\n"))
			grant := lines[len(lines)-1]
			m.answer = func(path string, body []byte) []byte {
				if path == auth.PathChallenge {
					return body
				}
				return grant
			}
			if err := again(client); !errors.Is(err, auth.ErrUnproven) || m.changed != 1 {
				t.Errorf("%s: %v, with %d answers replaced", path, err, m.changed)
			}
		}
	})
}

// TestUnprovenProvider: without a fingerprint nothing is sent, unless the user waived the proof; then the first key is the one to pin.
func TestUnprovenProvider(t *testing.T) {
	b, m := newEnv(t, nil), &middle{}
	client := b.between(t, m)
	r := registration("key")
	r.Provider.Fingerprint = ""
	if _, err := client.Register(t.Context(), r); !errors.Is(err, auth.ErrUnproven) ||
		len(m.passed) > 0 || !strings.Contains(err.Error(), "generate peer-command") {
		t.Errorf("%v, after %s", err, m.passed)
	}
	r.Provider.Unproven = true
	grant, err := client.Register(t.Context(), r)
	if err != nil || clusterkey.Fingerprint(grant.ProviderKey) != milan.Fingerprint {
		t.Errorf("%+v, %v", grant, err)
	}
	other := milan
	other.Fingerprint = clusterkey.Fingerprint(clusterkey.Public(newKey("other")))
	if _, err := client.Renew(t.Context(), other, consumer, newKey("key")); !errors.Is(err, auth.ErrUnproven) ||
		!strings.Contains(err.Error(), other.Fingerprint) {
		t.Errorf("%v", err)
	}
}

// TestRotatedClusterKey: a consumer that knows the previous key learns the current one, and only then the previous one may go.
func TestRotatedClusterKey(t *testing.T) {
	b := newEnv(t, nil)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	b.keys.set(clusterkey.Keys{Current: newKey("new"), Previous: newKey("milan")})
	grant, err := b.client.Renew(t.Context(), milan, consumer, newKey("key"))
	if err != nil || !grant.ProviderKey.Equal(clusterkey.Public(newKey("new"))) {
		t.Fatalf("%v, %v", grant.ProviderKey, err)
	}
	now := milan
	now.Fingerprint = clusterkey.Fingerprint(grant.ProviderKey)
	b.keys.set(clusterkey.Keys{Current: newKey("new")})
	if grant, err = b.client.Renew(t.Context(), now, consumer, newKey("key")); err != nil || !grant.ProviderKey.Equal(clusterkey.Public(newKey("new"))) {
		t.Errorf("%v, %v", grant.ProviderKey, err)
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, newKey("key")); !errors.Is(err, auth.ErrUnproven) {
		t.Errorf("who missed the rotation: %v", err)
	}
}

// TestReplacedKeys: a consumer that has replaced its keys is recognised by the old ones, and no other cluster is.
func TestReplacedKeys(t *testing.T) {
	b := newEnv(t, nil)
	if _, err := b.client.Register(t.Context(), registration("key")); err != nil {
		t.Fatal(err)
	}
	rotated := func(seed string, previous ...ed25519.PrivateKey) client.Registration {
		r := registration(seed)
		r.Secret, r.Previous = "", previous // the consumer has deleted the token
		return r
	}
	old, oldCluster := newKey("key"), newKey("cluster key")
	for name, r := range map[string]client.Registration{
		"without the old keys":               rotated("new"),
		"with the old key for this provider": rotated("new", old),
		"with the old cluster key":           rotated("new", oldCluster),
		"with keys of another cluster":       rotated("new", newKey("a"), newKey("b")),
	} {
		if _, err := b.client.Register(t.Context(), r); !errors.Is(err, auth.ErrEmptyDenied) {
			t.Errorf("%s: %v", name, err)
		}
		if r.Secret = goodToken; !errors.Is(second(b.client.Register(t.Context(), r)), auth.ErrConflict) {
			t.Errorf("%s, with a stolen token: %v", name, second(b.client.Register(t.Context(), r)))
		}
	}
	// What was stated to another provider, or by another consumer, or about other keys.
	for name, change := range map[string]func(*auth.Replacement){
		"to another provider":       func(r *auth.Replacement) { r.Provider = consumer.ClusterID },
		"by another consumer":       func(r *auth.Replacement) { r.Consumer = provider.ClusterID },
		"about another key":         func(r *auth.Replacement) { r.Key = clusterkey.Public(old) },
		"about another cluster key": func(r *auth.Replacement) { r.ClusterKey = clusterkey.Public(old) },
	} {
		request := wire("new", b.newChallenge(t, consumer), func(r *auth.RegistrationRequest) {
			statement := r.Replacement(provider.ClusterID)
			change(&statement)
			statement.Sign(old, oldCluster)
			r.Replaces = statement.Proofs
		})
		if code, answer, _ := b.send(t, "POST", auth.PathIdentity, request); code != 403 {
			t.Errorf("a statement %s: %d %s", name, code, answer)
		}
	}
	if grant, err := b.client.Renew(t.Context(), milan, consumer, old); err != nil || grant.Namespace == "" {
		t.Fatalf("the attacks interrupted the peering: %v", err)
	}

	grant, err := b.client.Register(t.Context(), rotated("new", old, oldCluster))
	if err != nil || grant.Token == "" {
		t.Fatalf("with both old keys: %v", err)
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, newKey("new")); err != nil {
		t.Errorf("renewal with the new key: %v", err)
	}
	if _, err := b.client.Renew(t.Context(), milan, consumer, old); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("renewal with the old key: %v", err)
	}
	if _, err := b.client.Register(t.Context(), rotated("new", old, oldCluster)); err != nil {
		t.Errorf("repeated, as its answer was lost: %v", err)
	}
	// The old keys, stolen, do not lead back: a replayed statement is one of keys that are not pinned any more.
	if _, err := b.client.Register(t.Context(), rotated("thief", old, oldCluster)); !errors.Is(err, auth.ErrEmptyDenied) {
		t.Errorf("a thief of the old keys: %v", err)
	}
	// One key only, as after a rotation that was interrupted.
	half := rotated("new", oldCluster, newKey("cluster new"))
	half.ClusterKey = newKey("cluster third")
	if _, err := b.client.Register(t.Context(), half); err != nil {
		t.Errorf("only the cluster key replaced: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestAttackM11: an issued token ends, is for one cluster, and is used once.
func TestAttackM11(t *testing.T) {
	b := newEnv(t, nil)
	secret := func(name string) string { return "an issued token for " + name }
	b.tokens.issued = []auth.AcceptedToken{
		{Secret: secret("rome"), For: "rome"},
		{Secret: secret("id"), For: consumer.ClusterID},
		{Secret: secret("paris"), For: "paris"},
		{Secret: secret("an hour"), Expires: b.clock.Now().Add(time.Hour)},
		{Secret: secret("one"), Once: true},
	}
	register := func(name, id string) error {
		r := registration(id)
		r.Secret = secret(name)
		if id != "" {
			r.Cluster.ClusterID = id + r.Cluster.ClusterID[8:]
		}
		_, err := b.client.Register(t.Context(), r)
		return err
	}
	for name, want := range map[string]error{"rome": nil, "id": nil, "paris": auth.ErrDenied, "an hour": nil, "one": nil} {
		if err := register(name, ""); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if err := register("one", ""); err != nil {
		t.Errorf("the same cluster again, after a lost answer: %v", err)
	}
	if err := register("one", "bbbbbbbb"); !errors.Is(err, auth.ErrDenied) || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("a second cluster: %v", err)
	}
	b.clock.advance(time.Hour)
	if err := register("an hour", ""); !errors.Is(err, auth.ErrDenied) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after an hour: %v", err)
	}
}
