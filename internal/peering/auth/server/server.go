// SPDX-License-Identifier: Apache-2.0

// Package server is the authentication service. It answers unauthenticated clients, writes one kind of object, the ConfigMap with the pinned key, and waits
// there for the name of the tenant's namespace. It must not know what a tenant consists of, and never logs or returns a token or a signature.
//
// The proofs are TestServerAgainstAPIServer, with exactly the rights of the markers in identity.go, and TestNothingSecretIsLogged. Tests of the client
// that need a service are here as well.
package server

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/challenge"
	"liqo.io/liqo/internal/peering/auth/ratelimit"
)

// callDeadline bounds the calls to the API server, except those that wait for the tenant.
const callDeadline = 5 * time.Second

// Unauthenticated clients share addresses (of an ingress, of a node with NAT), so one address may send many requests.
// First contact, renewal and the other requests have separate limits: guessing tokens, or flooding the other requests,
// must not keep peers from renewing.
var (
	contactPace  = ratelimit.Pace{PerSecond: 5, Burst: 100}
	contactTotal = ratelimit.Pace{PerSecond: 50, Burst: 500}
	otherPace    = ratelimit.Pace{PerSecond: 20, Burst: 200}
	otherTotal   = ratelimit.Pace{PerSecond: 200, Burst: 1000}
)

// bodyDeadline is for a body of a few kilobytes. Connections are limited, so a waiting one must not block others for long.
const bodyDeadline = 3 * time.Second

// maxWaiting bounds how many first contacts wait for their tenants concurrently.
const maxWaiting = 64

// Peers stores the peers. [Registry] implements it.
type Peers interface {
	Pinned(ctx context.Context, clusterID string) (auth.Pin, error)
	Pin(ctx context.Context, wanted auth.Pin) (pinned auth.Pin, created bool, err error)
	Provider(ctx context.Context, clusterID string) (fingerprint string, err error)
	// Spend records that a cluster uses a token that only one may use. It reports false if another cluster has.
	Spend(ctx context.Context, tokenID, clusterID string) (bool, error)
	// Replace returns the pin as soon as it has the new keys of a proven replacement.
	Replace(ctx context.Context, pin auth.Pin, by auth.Replacement) (auth.Pin, error)
	GrantNew(ctx context.Context, pin auth.Pin) (auth.Grant, error)
	Renew(ctx context.Context, pin auth.Pin) (auth.Grant, error)
}

// ServerOptions configure the service.
type Options struct {
	// Cluster is this cluster.
	Cluster discoveryv1alpha1.ClusterIdentity
	// EnableAuthentication: the empty token is refused.
	EnableAuthentication bool
	Tokens               TokenSource
	Keys                 KeySource
	Peers                Peers
	// Ways are where the gateways can be reached; nil for none.
	Ways func(context.Context) ([]byte, error)
	Log  logr.Logger
	// Now is the clock. Nil means the system clock.
	Now func() time.Time
}

// Server answers unauthenticated clients. NewServer creates it.
type Server struct {
	options     Options
	routes      map[string]route
	challenges  *challenge.Maker
	known       *known
	tenantSlots chan struct{}
	refusals    rate.Sometimes

	contact, others, renewals *ratelimit.Limiter
}

type route struct {
	method string
	limit  *ratelimit.Limiter
	read   func(body []byte) (*call, error)
}

// call is a request whose body was decoded.
type call struct {
	proof  proof                                                          // the request, if one of its kind can prove who has sent it
	answer func(ctx context.Context) (peer string, answer any, err error) // peer is the requesting cluster, if known
}

// reading decodes the body of a request once, for the question who has sent it and for the answer.
func reading[R any](parse func(body []byte) (R, *auth.Error), answer func(context.Context, R) (string, any, error)) func([]byte) (*call, error) {
	return func(body []byte) (*call, error) {
		request, refusal := parse(body)
		if refusal != nil {
			return nil, refusal
		}
		proves, _ := any(request).(proof)
		return &call{proves, func(ctx context.Context) (string, any, error) { return answer(ctx, request) }}, nil
	}
}

// NewServer returns the service.
func New(o Options) (*Server, error) {
	if err := auth.CheckClusterID(o.Cluster.ClusterID); err != nil {
		return nil, errors.New("the ID of this cluster is not a UUID in lower case")
	}
	if !auth.ValidClusterName(o.Cluster) {
		return nil, errors.New("the name of this cluster is not a DNS-1123 label, or too long")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		options:     o,
		challenges:  challenge.New(o.Now()),
		known:       newKnown(),
		contact:     ratelimit.New(contactPace, contactTotal),
		others:      ratelimit.New(otherPace, otherTotal),
		renewals:    ratelimit.New(otherPace, otherTotal),
		tenantSlots: make(chan struct{}, maxWaiting),
		refusals:    rate.Sometimes{Interval: 10 * time.Second},
	}
	s.routes = map[string]route{
		auth.PathIDs: {http.MethodGet, s.others, reading(func([]byte) (any, *auth.Error) { return nil, nil }, s.ids)},
		auth.PathIdentity: {http.MethodPost, s.contact, reading(func(body []byte) (auth.RegistrationRequest, *auth.Error) {
			return auth.ParseRegistration(body, o.Cluster)
		}, s.register)},
		auth.PathChallenge: {http.MethodPost, s.renewals, reading(auth.ParseChallengeRequest, s.challenge)},
		auth.PathRenewal:   {http.MethodPost, s.renewals, reading(auth.ParseRenewal, s.renew)},
	}
	return s, nil
}

// ServeHTTP answers one request and logs it in one line.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := s.options.Now()
	// Behind a proxy all requests have the proxy's address. Headers with another address are not trusted.
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	route, ok := s.routes[r.URL.Path]
	if !ok {
		route = s.routes[auth.PathIDs] // limited like a request for IDs
	}
	path, peer, answer, err := r.URL.Path, "", any(nil), error(nil)
	switch {
	case !ok:
		path, err = "unknown", auth.Refuse(http.StatusNotFound, auth.ReasonNotFound, "there is nothing here; this is the authentication service of a Liqo cluster")
	case r.Method != route.method:
		w.Header().Set("Allow", route.method)
		err = auth.Refuse(http.StatusMethodNotAllowed, auth.ReasonMethod, "this path answers %s only", route.method)
	}
	wait := route.limit.Admit(from.Addr(), start)
	var asked *call
	if err == nil && (wait == 0 || route.limit == s.renewals) {
		if asked, err = route.receive(w, r); err == nil && asked.proof != nil {
			wait = s.admitKnown(r.Context(), asked.proof, wait)
		}
	}
	if wait > 0 {
		refusal := auth.Refuse(http.StatusTooManyRequests, auth.ReasonTooMany, "too many requests from this address, or in total; try again later")
		refusal.RetryAfter = wait
		// A client that floods the service must not fill the disk with log lines.
		s.refusals.Do(func() { s.options.Log.Info("requests refused", "remote", from.Addr().String(), "code", refusal.Code) })
		w.Header().Set("Connection", "close")
		respond(w, refusal.Code, refusal)
		return
	}
	if err == nil {
		peer, answer, err = asked.answer(r.Context())
	}
	refusal := asRefusal(err)
	log := s.options.Log.WithValues("path", path, "peer", peer, "remote", from.Addr().String(), "seconds", s.options.Now().Sub(start).Seconds())
	if path == auth.PathChallenge && refusal == nil || refusal != nil && refusal.Reason == auth.ReasonChallenge {
		listener.Prefer(r.Context()) // the client goes on
	} else {
		w.Header().Set("Connection", "close") // others need the place; it is also one guess of a token per connection, whose number a proxy bounds
	}
	if refusal == nil {
		log.Info("request", "result", "Done", "code", http.StatusOK)
		respond(w, http.StatusOK, answer)
		return
	}
	if refusal.Reason == auth.ReasonDenied || refusal.Reason == auth.ReasonEmptyDenied {
		route.limit.Charge(from.Addr(), start)
	}
	log = log.WithValues("result", refusal.Reason, "code", refusal.Code)
	if refusal.Code >= http.StatusInternalServerError {
		log.Error(refusal.Cause, "request")
	} else {
		log.Info("request")
	}
	respond(w, refusal.Code, refusal)
}

// admitKnown returns how long to wait: a cluster that proves by its request that it is known need not wait for others, and keeps its connection.
func (s *Server) admitKnown(ctx context.Context, request proof, wait time.Duration) time.Duration {
	peer := s.known.prover(request, s.options.Now())
	if peer == "" {
		return wait
	}
	listener.Keep(ctx, peer)
	if wait > 0 && s.known.pace.Allow(peer, s.options.Now()) {
		return 0
	}
	return wait
}

func (r route) receive(w http.ResponseWriter, request *http.Request) (*call, error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyDeadline)) // fails only in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, auth.MaxRequest))
	if err != nil {
		return nil, auth.Invalid("the body did not arrive within %s, or has more than %d bytes", bodyDeadline, auth.MaxRequest)
	}
	_ = connection.SetReadDeadline(time.Time{}) // the deadline would cancel the request
	return r.read(body)
}

func (s *Server) ids(context.Context, any) (string, any, error) {
	return "", auth.IDsAnswer{
		ClusterID: s.options.Cluster.ClusterID, ClusterName: s.options.Cluster.ClusterName,
		Version: version.Version, Protocol: auth.ProtocolRange, Capabilities: version.Capabilities(),
	}, nil
}

func (s *Server) challenge(ctx context.Context, request auth.ChallengeRequest) (string, any, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	keys, err := s.options.Keys.ClusterKeys(ctx)
	if err != nil {
		return request.ClusterID, nil, auth.Unavailable(err)
	}
	private, found := keys.Find(request.Provider)
	if !found {
		private = keys.Current // the client sees that it is not the one that it knows
	}
	answer := auth.ChallengeAnswer{
		Challenge: s.challenges.Issue(request.ClusterID, s.options.Now()), ExpiresIn: int64(challenge.Lifetime / time.Second),
		ProviderKey: clusterkey.Public(private),
	}
	answer.Signature = ed25519.Sign(private, answer.Signed(request))
	return request.ClusterID, answer, nil
}

func (s *Server) renew(ctx context.Context, request auth.RenewalRequest) (string, any, error) {
	peer := request.ClusterID
	which, fresh := s.challenges.Check(request.Question.Challenge, peer, s.options.Now())
	if !fresh {
		return peer, nil, auth.ChallengeNeeded
	}
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	pin, err := s.options.Peers.Pinned(ctx, peer)
	if err != nil && !errors.Is(err, errNotPinned) {
		return peer, nil, err
	}
	// The same answer for both: it must not disclose which clusters are registered.
	if err != nil || !request.Proves(pin.Key, s.options.Now()) {
		return peer, nil, auth.Refuse(http.StatusForbidden, auth.ReasonNotRegistered,
			"cluster %s is not registered in %s with this key; first contact must be made again, with the token", peer, s.options.Cluster.ClusterName)
	}
	signer, err := s.signer(ctx, request.Question)
	if err != nil {
		return peer, nil, err
	}
	// After the signature is verified, so that a client that captured the challenge cannot use it up.
	if !s.challenges.Spend(which, peer, s.options.Now()) {
		return peer, nil, auth.ChallengeNeeded
	}
	listener.Keep(ctx, peer)
	s.known.learn(peer, pin.Key)
	pin.InBand = request.Question.InBand
	grant, err := s.options.Peers.Renew(ctx, pin)
	if errors.Is(err, errRevoked) {
		return peer, nil, &auth.Error{
			Code: http.StatusForbidden, Reason: auth.ReasonRevoked, Cause: err,
			Message: "the peering was ended in " + s.options.Cluster.ClusterName + "; first contact must be made again, with the token",
		}
	}
	if err != nil {
		return peer, nil, err
	}
	answer, err := signer.answer(grant, auth.AnswerTo{Provider: s.options.Cluster.ClusterID, Consumer: peer, PublicKey: pin.Key, Question: request.Question})
	return peer, answer, err
}

func asRefusal(err error) *auth.Error {
	if err == nil {
		return nil
	}
	var refusal *auth.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return auth.Unavailable(err)
}

func respond(w http.ResponseWriter, code int, answer any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if refusal, ok := answer.(*auth.Error); ok && refusal.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(refusal.RetryAfter.Seconds()))))
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a client that closed the connection does not need it
}
