// SPDX-License-Identifier: Apache-2.0

// Package caller authenticates and authorizes the clients of our HTTPS ports. A client of a kubelet's port shows a certificate of the API
// server's client authority or a token, as in a kubelet's webhook mode. The client of an aggregated API is the API server, which names the user it
// asks for. A SubjectAccessReview decides what that user may do; answers are cached for a while.
//
// It must not know what is requested: the package that serves the port names the resource. Its proof is caller_test.go, with a real API server's
// certificates and tokens.
//
// k8s.io/apiserver's delegating authenticator and authorizer do the same in a kubelet. They link its admission and CEL packages, which add 7.7 MB to
// the binary and 9.5 MB of memory to each of our processes.
package caller

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/kube/ratelimit"
)

const (
	// How long an answer is cached: as in a kubelet, but shorter for tokens, because a revoked token must stop working.
	tokenTTL, tokenDeniedTTL   = 30 * time.Second, 10 * time.Second
	accessTTL, accessDeniedTTL = time.Minute, 10 * time.Second
	// maxAnswers bounds the memory that clients can make us use.
	maxAnswers = 1000
	// longestToken exceeds every token in use.
	longestToken  = 16 << 10
	reviewTimeout = 8 * time.Second
	// Every invented token costs a TokenReview, so each network has its own budget of them, and all together one that no network can use up. Clients with a
	// certificate need none. Every question costs a SubjectAccessReview, so each user, who is authenticated, has a budget of these.
	tokensPerSecond, tokensBurst, allPerSecond, allBurst = 5, 30, 200, 400
	accessesPerSecond, accessesBurst                     = 50, 500
	maxBudgets                                           = 4096
	// authenticated is a group of every authenticated user.
	authenticated = "system:authenticated"
)

var (
	errUnknown = errors.New("the request has neither a certificate of the API server's client authority nor a token that the API server accepts")
	errBusy    = errors.New("too many requests with unknown tokens from this address; try again")
	errOften   = errors.New("too many different questions of this user; try again")
)

// Callers authenticates and authorizes clients.
type Callers struct {
	api    client.Client
	source source
	// reviews limits TokenReviews by network, all in total, and questions SubjectAccessReviews by user.
	reviews   *ratelimit.Limiter[netip.Prefix]
	all       *rate.Limiter
	questions *ratelimit.Limiter[string]
	// The caches are keyed by the hash of the question, so they hold no token.
	tokens, accesses *cache.LRUExpireCache
}

// New returns Callers that ask the API server through api, which needs no cache.
func New(api client.Client) *Callers {
	return &Callers{
		api: api, source: source{reader: api},
		reviews: ratelimit.New[netip.Prefix](tokensPerSecond, tokensBurst, maxBudgets), all: rate.NewLimiter(allPerSecond, allBurst),
		questions: ratelimit.New[string](accessesPerSecond, accessesBurst, maxBudgets),
		tokens:    cache.NewLRUExpireCache(maxAnswers), accesses: cache.NewLRUExpireCache(maxAnswers),
	}
}

// Denied is why a request is not served.
type Denied struct {
	// Code is the HTTP status of the response.
	Code int
	err  error
}

func (d *Denied) Error() string { return d.err.Error() }
func (d *Denied) Unwrap() error { return d.err }

func deny(code int, err error) *Denied { return &Denied{Code: code, err: err} }

func clients(a *authorities) *x509.CertPool { return a.clients }
func proxies(a *authorities) *x509.CertPool { return a.proxies }

// Certified returns who has proven to have a certificate of the API server's client authority, or to be an API server, "" if there is no proof. It decides only
// which connections stay: each request is judged on its own.
func (c *Callers) Certified(state tls.ConnectionState) string {
	for _, pool := range []func(*authorities) *x509.CertPool{clients, proxies} {
		if leaf, _, err := c.source.verify(context.Background(), &state, pool); err == nil {
			return leaf.Subject.CommonName
		}
	}
	return ""
}

// Direct returns the user whose certificate or token the request carries.
func (c *Callers) Direct(r *http.Request) (*authenticationv1.UserInfo, *Denied) {
	leaf, _, err := c.source.verify(r.Context(), r.TLS, clients)
	if err == nil {
		return &authenticationv1.UserInfo{Username: leaf.Subject.CommonName, Groups: withAuthenticated(leaf.Subject.Organization)}, nil
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "Bearer") || token == "" || len(token) > longestToken {
		if errors.Is(err, errUnknown) {
			return nil, deny(http.StatusUnauthorized, errUnknown)
		}
		return nil, deny(http.StatusServiceUnavailable, err)
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // those that cannot be parsed count as one network
	return c.tokenUser(r.Context(), token, ratelimit.NetworkOf(from.Addr()))
}

func (c *Callers) tokenUser(ctx context.Context, token string, from netip.Prefix) (*authenticationv1.UserInfo, *Denied) {
	key := sha256.Sum256([]byte(token))
	if cached, ok := c.tokens.Get(key); ok {
		if user, ok := cached.(*authenticationv1.UserInfo); ok {
			return user, nil
		}
		return nil, deny(http.StatusUnauthorized, errUnknown)
	}
	if !c.reviews.Allow(from, time.Now()) || !c.all.Allow() {
		return nil, deny(http.StatusTooManyRequests, errBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.api.Create(ctx, review); err != nil {
		return nil, deny(http.StatusServiceUnavailable, fmt.Errorf("TokenReview by the API server: %w", err))
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		c.tokens.Add(key, nil, tokenDeniedTTL)
		return nil, deny(http.StatusUnauthorized, errUnknown)
	}
	user := &review.Status.User
	user.Groups = withAuthenticated(user.Groups)
	c.tokens.Add(key, user, tokenTTL)
	return user, nil
}

// Proxied returns the user that the API server names in the headers of a request to an aggregated API. The API server has authenticated that user.
func (c *Callers) Proxied(r *http.Request) (*authenticationv1.UserInfo, *Denied) {
	leaf, known, err := c.source.verify(r.Context(), r.TLS, proxies)
	switch {
	case errors.Is(err, errUnknown):
		return nil, deny(http.StatusUnauthorized, errors.New("the request does not come from the API server; this port serves an aggregated API"))
	case err != nil:
		return nil, deny(http.StatusServiceUnavailable, err)
	case len(known.proxyNames) > 0 && !slices.Contains(known.proxyNames, leaf.Subject.CommonName):
		return nil, deny(
			http.StatusUnauthorized,
			fmt.Errorf("%q may not make requests for other users; see requestheader-allowed-names in ConfigMap %s", leaf.Subject.CommonName, ConfigMap),
		)
	}
	user := known.headerUser(r.Header)
	if user.Username == "" {
		return nil, deny(http.StatusUnauthorized, errors.New("the request of the API server names no user"))
	}
	return user, nil
}

// Allow returns nil if the API server lets the user do that. ctx is that of the request: its connection then stays, however many others come.
func (c *Callers) Allow(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) *Denied {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, ResourceAttributes: what}
	for name, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return deny(http.StatusInternalServerError, err)
	}
	key := sha256.Sum256(text)
	refused := func(reason string) *Denied {
		return deny(http.StatusForbidden, fmt.Errorf("user %q may not %s %s/%s %q of group %q: %s",
			user.Username, what.Verb, what.Resource, what.Subresource, what.Name, what.Group, reason))
	}
	if cached, ok := c.accesses.Get(key); ok {
		if reason, ok := cached.(string); ok {
			return refused(reason)
		}
		listener.Keep(ctx, user.Username)
		return nil
	}
	if !c.questions.Allow(user.Username, time.Now()) {
		return deny(http.StatusTooManyRequests, errOften)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := c.api.Create(ctx, review); err != nil {
		return deny(http.StatusServiceUnavailable, fmt.Errorf("SubjectAccessReview of user %q by the API server: %w", user.Username, err))
	}
	if review.Status.Allowed && !review.Status.Denied {
		c.accesses.Add(key, nil, accessTTL)
		listener.Keep(ctx, user.Username)
		return nil
	}
	reason := review.Status.Reason
	if reason == "" {
		reason = "no rule allows it"
	}
	c.accesses.Add(key, reason, accessDeniedTTL)
	return refused(reason)
}

func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

// unescape reverses the escaping by which the API server fits a key into the name of a header.
func unescape(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}
