// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

func from(token string, certificate []byte, key []byte, header http.Header) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if header != nil {
		r.Header = header
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			panic(err) // the test made it
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			panic(err)
		}
		r.TLS.PeerCertificates = []*x509.Certificate{leaf}
	}
	return r
}

// TestCallers: clients that the API server authenticates are authenticated here, with one request to the API server for each question.
func TestCallers(t *testing.T) {
	admin := kubetest.Cluster(t)
	var reviews atomic.Int32
	counted := rest.CopyConfig(admin)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				reviews.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	api, err := client.New(counted, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "client"}}
	if err := api.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	callers := New(api)
	reviews.Store(0)
	for range 3 {
		user, denied := callers.Direct(from(request.Status.Token, nil, nil, nil))
		if denied != nil || user.Username != "system:serviceaccount:default:client" || !slices.Contains(user.Groups, "system:authenticated") {
			t.Fatalf("%v %v", user, denied)
		}
		if _, denied := callers.Direct(from("made.up", nil, nil, nil)); denied == nil || denied.Code != http.StatusUnauthorized {
			t.Errorf("an invented token: %v", denied)
		}
		what := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "proxy", Name: "x"}
		if denied := callers.Allow(t.Context(), user, what); denied == nil ||
			denied.Code != http.StatusForbidden || strings.Contains(denied.Error(), request.Status.Token) {
			t.Errorf("a right that no role grants: %v", denied)
		}
	}
	if got := reviews.Load(); got != 3 {
		t.Errorf("%d reviews, want 3: two tokens, one right", got)
	}
	// A client certificate authenticates its own user, and does not allow requests for other users.
	user, denied := callers.Direct(from("", admin.CertData, admin.KeyData, nil))
	if denied != nil || !slices.Contains(user.Groups, "system:masters") {
		t.Fatalf("%v %v", user, denied)
	}
	if denied := callers.Allow(t.Context(), user, &authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes", Subresource: "proxy"}); denied != nil {
		t.Errorf("the administrator: %v", denied)
	}
	if user, denied := callers.Proxied(from("", admin.CertData, admin.KeyData, http.Header{"X-Remote-User": {"root"}})); denied == nil {
		t.Errorf("the administrator makes requests for %v", user)
	}
	for name, r := range map[string]*http.Request{
		"nothing": from("", nil, nil, nil), "a long token": from(strings.Repeat("x", longestToken+1), nil, nil, nil),
		"another kind": from("", nil, nil, http.Header{"Authorization": {"Basic YTpi"}}),
	} {
		if _, denied := callers.Direct(r); denied == nil || denied.Code != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, denied)
		}
	}
}

// TestFlood: invented tokens cause a bounded number of reviews and use bounded memory.
func TestFlood(t *testing.T) {
	admin := kubetest.Cluster(t)
	config := rest.CopyConfig(admin)
	config.QPS = -1
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	callers := New(api)
	var refused int
	for i := range 400 {
		_, denied := callers.Direct(from(fmt.Sprint("made.up.", i), nil, nil, nil))
		if denied == nil {
			t.Fatal("an invented token is accepted")
		}
		if denied.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("each of 400 tokens was reviewed")
	}
	for i := range 3 * maxAnswers {
		callers.tokens.Add(i, nil, tokenDeniedTTL)
	}
	if got := len(callers.tokens.Keys()); got > maxAnswers {
		t.Errorf("%d answers are cached", got)
	}
}

// TestAttackNM10: pods at other addresses send tokens that they have invented, as fast as they can. A client with a token that was not seen before is
// authenticated, and what it may do is answered; a user who asks for ever other things keeps no other from being answered.
func TestAttackNM10(t *testing.T) {
	reviewed := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
		switch review := object.(type) {
		case *authenticationv1.TokenReview:
			if name, honest := strings.CutPrefix(review.Spec.Token, "token of "); honest {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
			}
		case *authorizationv1.SubjectAccessReview:
			review.Status.Allowed = true
		}
		return nil
	}}
	callers := New(interceptor.NewClient(nil, reviewed))
	at := func(address, token string) *http.Request {
		r := from(token, nil, nil, nil)
		r.RemoteAddr = address + ":40000"
		return r
	}
	for i := range 2000 {
		callers.Direct(at(fmt.Sprint("10.0.0.", i%2), fmt.Sprint("invented ", i))) //nolint:errcheck // refused
	}
	if _, denied := callers.Direct(at("10.0.0.1", "another")); denied == nil || denied.Code != http.StatusTooManyRequests {
		t.Errorf("the attacker gets %v", denied)
	}
	user, denied := callers.Direct(at("10.0.0.9", "token of metrics-server"))
	if denied != nil {
		t.Fatalf("an honest client gets %v", denied)
	}
	what := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "metrics"}
	attacker, refused := &authenticationv1.UserInfo{Username: "attacker"}, 0
	for i := range 2000 {
		asked := *what
		asked.Name = fmt.Sprint(i)
		if denied := callers.Allow(t.Context(), attacker, &asked); denied != nil && denied.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if denied := callers.Allow(t.Context(), user, what); denied != nil || refused == 0 {
		t.Errorf("an honest user gets %v, and the attacker was refused %d times", denied, refused)
	}
}

// TestUnreachable: while the API server cannot be reached, clients get 503, not 401.
func TestUnreachable(t *testing.T) {
	nowhere, err := client.New(&rest.Config{Host: "https://127.0.0.1:1"}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	callers := New(nowhere)
	if _, denied := callers.Direct(from("a.b.c", nil, nil, nil)); denied == nil || denied.Code != http.StatusServiceUnavailable {
		t.Errorf("%v", denied)
	}
	if _, err := callers.source.get(context.Background(), rereadInterval); err == nil {
		t.Error("authorities without an API server")
	}
}
