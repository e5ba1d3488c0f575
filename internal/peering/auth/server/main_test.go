// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/client"
)

const goodToken = "c0ffee00c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66c0ffee77"

var (
	provider = discoveryv1alpha1.ClusterIdentity{ClusterID: "11111111-2222-4333-8444-555555555555", ClusterName: "milan"}
	consumer = discoveryv1alpha1.ClusterIdentity{ClusterID: "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", ClusterName: "rome"}
)

// journal is the log of all servers of all tests, and the secrets that it must not have.
type journal struct {
	mu      sync.Mutex
	text    bytes.Buffer
	secrets map[string]bool
}

var logged = journal{secrets: map[string]bool{goodToken: true}}

func (j *journal) log() logr.Logger {
	return funcr.New(func(prefix, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.text.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 10})
}

func (j *journal) secret(secrets ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, secret := range secrets {
		if len(secret) > 8 { // shorter ones are found anywhere
			j.secrets[secret] = true
		}
	}
}

func (j *journal) leaks() (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for secret := range j.secrets {
		if strings.Contains(j.text.String(), secret) {
			found = append(found, secret)
		}
	}
	return found
}

func (j *journal) size() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Len()
}

// The journal is complete only when all tests have run.
func TestMain(m *testing.M) {
	code := m.Run()
	if leaks := logged.leaks(); len(leaks) > 0 {
		fmt.Println("FAIL: secrets in the logs:", leaks)
		code = 1
	}
	os.Exit(code)
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixedTokens accepts one token, and those that a test adds.
type fixedTokens struct {
	mu     sync.Mutex
	secret string
	issued []auth.AcceptedToken
	err    error
	reads  int
}

func (f *fixedTokens) Tokens(context.Context) ([]auth.AcceptedToken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.err == nil && f.secret == "" {
		return nil, errNoToken
	}
	return append([]auth.AcceptedToken{{Secret: f.secret}}, f.issued...), f.err
}

func (f *fixedTokens) set(secret string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secret, f.err = secret, err
}

// fixedKeys are the cluster keys of a provider.
type fixedKeys struct {
	mu   sync.Mutex
	keys clusterkey.Keys
}

func (f *fixedKeys) ClusterKeys(context.Context) (clusterkey.Keys, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys, nil
}

func (f *fixedKeys) set(keys clusterkey.Keys) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = keys
}

// memory is a registry without an API server. Its tenants are ready at once.
type memory struct {
	mu      sync.Mutex
	pins    map[string]auth.Pin
	spent   map[string]string
	revoked map[string]bool
	// providers are the fingerprints of clusters that may register without a token.
	providers map[string]string
	grants    int
	calls     int
}

func newMemory() *memory {
	return &memory{pins: map[string]auth.Pin{}, spent: map[string]string{}, revoked: map[string]bool{}}
}

func (m *memory) Pinned(_ context.Context, id string) (auth.Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	pin, ok := m.pins[id]
	if !ok {
		return auth.Pin{}, errNotPinned
	}
	return pin, nil
}

func (m *memory) Provider(_ context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.providers[id], nil
}

func (m *memory) Pin(_ context.Context, wanted auth.Pin) (auth.Pin, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if pin, ok := m.pins[wanted.Cluster.ClusterID]; ok {
		return pin, false, nil
	}
	wanted.Namespace = wanted.Cluster.TenantNamespace()
	m.pins[wanted.Cluster.ClusterID] = wanted
	return wanted, true, nil
}

func (m *memory) Spend(_ context.Context, tokenID, clusterID string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if by, used := m.spent[tokenID]; used {
		return by == clusterID, nil
	}
	m.spent[tokenID] = clusterID
	return true, nil
}

func (m *memory) Replace(_ context.Context, pin auth.Pin, by auth.Replacement) (auth.Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pin.Key, pin.ClusterKey = by.Key, by.ClusterKey
	m.pins[pin.Cluster.ClusterID] = pin
	return pin, nil
}

func (m *memory) GrantNew(ctx context.Context, pin auth.Pin) (auth.Grant, error) {
	return m.Renew(ctx, pin)
}

func (m *memory) Renew(_ context.Context, pin auth.Pin) (auth.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.revoked[pin.Cluster.ClusterID] {
		return auth.Grant{}, fmt.Errorf("%w: no such account", errRevoked)
	}
	m.grants++
	token := fmt.Sprintf("bearer-%s-%d", pin.Cluster.ClusterID, m.grants)
	logged.secret(token)
	return auth.Grant{Namespace: pin.Namespace, Token: token, Lifetime: time.Hour, APIServerURL: "https://192.0.2.1:6443"}, nil
}

// env is a server with its dependencies, and a client of it.
type env struct {
	*Server
	client *client.Client
	url    string
	clock  *clock
	tokens *fixedTokens
	keys   *fixedKeys
	peers  *memory
	http   *http.Client
}

func newEnv(t testing.TB, change func(*Options)) *env {
	t.Helper()
	b := &env{clock: newClock(), tokens: &fixedTokens{secret: goodToken}, keys: &fixedKeys{keys: clusterkey.Keys{Current: newKey("milan")}}, peers: newMemory()}
	options := Options{
		Cluster: provider, EnableAuthentication: true, Tokens: b.tokens, Keys: b.keys, Peers: b.peers, Log: logged.log(), Now: b.clock.Now,
	}
	if change != nil {
		change(&options)
	}
	server, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	b.Server = server
	b.url, b.http = listen(t, server, b.clock.Now)
	b.client = dial(t, b.url)
	return b
}

// listen serves with the server's clock in the header Date.
func listen(t testing.TB, handler http.Handler, now func() time.Time) (string, *http.Client) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", now().UTC().Format(http.TimeFormat))
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

func dial(t testing.TB, url string) *client.Client {
	t.Helper()
	client, err := client.New(url, client.Options{InsecureSkipTLSVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// newKey is the same for the same seed, in every run.
func newKey(seed string) ed25519.PrivateKey {
	sum := sha256.Sum256([]byte(seed))
	return ed25519.NewKeyFromSeed(sum[:])
}

// milan is the provider as its token describes it.
var milan = client.Provider{ID: provider.ClusterID, Fingerprint: clusterkey.Fingerprint(clusterkey.Public(newKey("milan")))}

func registration(seed string) client.Registration {
	return client.Registration{
		Provider: milan, Cluster: consumer, AuthURL: "https://203.0.113.9", Secret: goodToken, Key: newKey(seed),
		ClusterKey: newKey("cluster " + seed),
	}
}

func testQuestion(challenge string) auth.Question {
	q := auth.Question{Provider: milan.Fingerprint, Challenge: challenge, Nonce: make([]byte, auth.NonceSize), SealTo: bytes.Repeat([]byte{9}, auth.SealKeySize)}
	q.Nonce[0] = 1
	return q
}

// wire is a registration as it is sent; change comes before it is signed.
func wire(seed, challenge string, change func(*auth.RegistrationRequest)) auth.RegistrationRequest {
	private, clusterKey := newKey(seed), newKey("cluster "+seed)
	r := auth.RegistrationRequest{
		Cluster: consumer, AuthURL: "https://203.0.113.9", TokenID: auth.TokenID(goodToken),
		PublicKey: clusterkey.Public(private), ClusterKey: clusterkey.Public(clusterKey), Protocol: auth.ProtocolRange, Question: testQuestion(challenge),
	}
	if change != nil {
		change(&r)
	}
	r.TokenProof = auth.TokenProof(goodToken, r.Signed())
	r.Proof, r.ClusterProof = ed25519.Sign(private, r.Signed()), ed25519.Sign(clusterKey, r.Signed())
	logged.secret(base64.StdEncoding.EncodeToString(r.Proof), base64.StdEncoding.EncodeToString(r.TokenProof), r.Question.Challenge)
	return r
}
