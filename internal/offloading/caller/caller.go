// SPDX-License-Identifier: Apache-2.0

// Package caller tells who calls an HTTPS port of ours, and whether he may: as a kubelet does it in its webhook mode (a certificate of the
// API server's client authority, or a token that the API server knows), or as an aggregated API does it (the API server itself, which
// says for whom). Whether he may, the API server is asked by a SubjectAccessReview; answers are remembered for a while.
//
// It must not know what is asked for: who serves the port says which resource that is. Its proof is caller_test.go, against a real API
// server, whose own certificates and tokens it is shown.
package caller

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// How long an answer is good: a kubelet's times, but for tokens, which are revoked to take effect.
	tokenTTL, tokenDeniedTTL   = 30 * time.Second, 10 * time.Second
	accessTTL, accessDeniedTTL = time.Minute, 10 * time.Second
	// mostAnswers bounds the memory that callers can make us use.
	mostAnswers = 1000
	// longestToken is above all that there are.
	longestToken = 16 << 10
	askTimeout   = 8 * time.Second
	// authenticated is in the groups of everybody who is known.
	authenticated = "system:authenticated"
)

var (
	errUnknown = errors.New("neither a certificate of the API server's client authority nor a token that it knows")
	errBusy    = errors.New("too many callers whom nobody knows; try again")
)

// Callers knows who calls.
type Callers struct {
	api       client.Client
	source    source
	questions *rate.Limiter
	tokens    answers[*authenticationv1.UserInfo]
	accesses  answers[string]
}

// New asks through api, which needs no cache.
func New(api client.Client) *Callers {
	return &Callers{
		api: api, source: source{reader: api},
		// Each token that is made up costs a question.
		questions: rate.NewLimiter(50, 100),
		tokens:    answers[*authenticationv1.UserInfo]{of: map[[sha256.Size]byte]answer[*authenticationv1.UserInfo]{}},
		accesses:  answers[string]{of: map[[sha256.Size]byte]answer[string]{}},
	}
}

// Denied is why a request is not served.
type Denied struct {
	// Code is the status of the answer.
	Code int
	err  error
}

func (d *Denied) Error() string { return d.err.Error() }
func (d *Denied) Unwrap() error { return d.err }

func deny(code int, err error) *Denied { return &Denied{Code: code, err: err} }

// Direct is who calls by himself: with a certificate, or with a token.
func (c *Callers) Direct(r *http.Request) (*authenticationv1.UserInfo, *Denied) {
	leaf, _, err := c.source.check(r, func(a *authorities) *x509.CertPool { return a.clients })
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
	return c.token(r.Context(), token)
}

func (c *Callers) token(ctx context.Context, token string) (*authenticationv1.UserInfo, *Denied) {
	key := sha256.Sum256([]byte(token))
	if user, known := c.tokens.get(key); known {
		if user == nil {
			return nil, deny(http.StatusUnauthorized, errUnknown)
		}
		return user, nil
	}
	if !c.questions.Allow() {
		return nil, deny(http.StatusTooManyRequests, errBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.api.Create(ctx, review); err != nil {
		return nil, deny(http.StatusServiceUnavailable, fmt.Errorf("ask the API server whose token this is: %w", err))
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		c.tokens.put(key, nil, tokenDeniedTTL)
		return nil, deny(http.StatusUnauthorized, errUnknown)
	}
	user := &review.Status.User
	user.Groups = withAuthenticated(user.Groups)
	c.tokens.put(key, user, tokenTTL)
	return user, nil
}

// Proxied is for whom the API server calls: it has authenticated him already.
func (c *Callers) Proxied(r *http.Request) (*authenticationv1.UserInfo, *Denied) {
	leaf, known, err := c.source.check(r, func(a *authorities) *x509.CertPool { return a.proxies })
	switch {
	case errors.Is(err, errUnknown):
		return nil, deny(http.StatusUnauthorized, errors.New("not the API server; this port serves an aggregated API"))
	case err != nil:
		return nil, deny(http.StatusServiceUnavailable, err)
	case len(known.proxyNames) > 0 && !slices.Contains(known.proxyNames, leaf.Subject.CommonName):
		return nil, deny(http.StatusUnauthorized, fmt.Errorf("%q may not speak in the name of others", leaf.Subject.CommonName))
	}
	user := known.spokenFor(r.Header)
	if user.Username == "" {
		return nil, deny(http.StatusUnauthorized, errors.New("the API server does not say for whom it asks"))
	}
	return user, nil
}

// Allow asks whether the user may. A nil answer says yes.
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
	if reason, known := c.accesses.get(key); known {
		if reason != "" {
			return refused(reason)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := c.api.Create(ctx, review); err != nil {
		return deny(http.StatusServiceUnavailable, fmt.Errorf("ask the API server what %q may do: %w", user.Username, err))
	}
	if review.Status.Allowed && !review.Status.Denied {
		c.accesses.put(key, "", accessTTL)
		return nil
	}
	reason := review.Status.Reason
	if reason == "" {
		reason = "no rule allows it"
	}
	c.accesses.put(key, reason, accessDeniedTTL)
	return refused(reason)
}

func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

// unescape reads a key as the API server escapes it, to fit into a header's name.
func unescape(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}

// answers are remembered for a while, by the hash of the question: no token is kept.
type answers[T any] struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]answer[T]
}

type answer[T any] struct {
	value T
	until time.Time
}

func (a *answers[T]) get(key [sha256.Size]byte) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.of[key]
	return found.value, ok && time.Now().Before(found.until)
}

func (a *answers[T]) put(key [sha256.Size]byte, value T, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) >= mostAnswers {
		now := time.Now()
		for old := range a.of {
			if now.After(a.of[old].until) {
				delete(a.of, old)
			}
		}
		if len(a.of) >= mostAnswers {
			clear(a.of) // they can be asked for again
		}
	}
	a.of[key] = answer[T]{value: value, until: time.Now().Add(ttl)}
}
