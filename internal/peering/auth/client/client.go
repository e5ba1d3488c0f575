// SPDX-License-Identifier: Apache-2.0

// Package client calls the authentication service of a provider. It trusts no answer: what it returns was signed by the provider's key, and checked.
package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

const (
	// defaultTimeout includes the time in which the provider creates the tenant.
	defaultTimeout = auth.TenantDeadline + 5*time.Second
	// maxAnswer is much more than the longest honest answer, which has a bundle of certificates.
	maxAnswer = 256 << 10
	// dialTimeout is much shorter than that of a request: a host behind a firewall is silent, and then there may be another way.
	dialTimeout = 5 * time.Second
	// challengeAttempts is more than one because several servers may share an address, and each accepts only its own
	// challenges.
	challengeAttempts = 4
	// connectionAttempts is how often a challenge is asked for at once while the service ends connections for others.
	connectionAttempts = 4
)

// ClientOptions configure the connection to a provider.
type Options struct {
	// InsecureSkipTLSVerify accepts any certificate. IDs still reports the problems of the certificate.
	InsecureSkipTLSVerify bool
	// ProxyURL is that of an HTTP CONNECT proxy; empty for none.
	ProxyURL string
	// Dial opens connections to the proxy or, without one, to the service. Nil means a plain TCP connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout is that of each request. Default 15 s.
	Timeout time.Duration
}

// Client calls the authentication service of one provider. It is safe for concurrent use.
type Client struct {
	url  string
	host string
	http *http.Client
}

// NewClient returns a client. It sends nothing.
func New(authURL string, o Options) (*Client, error) {
	parsed, err := url.Parse(authURL)
	// The error must not repeat the URL, which may have a password.
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("the URL of the authentication service must look like https://HOST or https://HOST:PORT")
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.InsecureSkipTLSVerify}, //nolint:gosec // the user's choice
		DialContext:           o.Dial,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: defaultTimeout,
		IdleConnTimeout:       time.Second, // shorter than that of the service
		MaxIdleConns:          2,
		// Answers are small. A compressed answer could expand without bound.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	if o.ProxyURL != "" {
		proxy, err := url.Parse(o.ProxyURL)
		if err != nil || proxy.Hostname() == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
			return nil, errors.New("the URL of the proxy must look like http://HOST:PORT")
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return &Client{
		url:  strings.TrimRight(parsed.String(), "/"),
		host: parsed.Hostname(),
		http: &http.Client{
			Transport: transport,
			Timeout:   o.Timeout,
			// The token must not follow a redirect.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections. Without it they close after a second.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Provider is what a consumer knows of a provider.
type Provider struct {
	// ID is its cluster ID.
	ID string
	// Fingerprint is that of its cluster key, from the token or from an earlier grant.
	Fingerprint string
	// InBand: its API server is reached through its proxy.
	InBand bool
	// Unproven accepts any key if Fingerprint is empty: then a machine on the way can take the provider's place. The user must have chosen it.
	Unproven bool
}

// Registration is a consumer's request on first contact.
type Registration struct {
	Provider Provider
	// Cluster is the consumer.
	Cluster discoveryv1alpha1.ClusterIdentity
	// AuthURL is that of the consumer's own service; empty if the provider cannot reach it.
	AuthURL string
	// Secret is that of the provider's token. It is not sent.
	Secret string
	// Key is that of the consumer for this provider, and used with no other; see package key.
	Key ed25519.PrivateKey
	// ClusterKey identifies the consumer to all its peers.
	ClusterKey ed25519.PrivateKey
	// Previous are the keys that these two replaced, as far as the consumer has them. A provider that knows the consumer by them then believes the new ones.
	Previous []ed25519.PrivateKey
	// DryRun checks the token and the input, and changes nothing. The grant then has only the provider's key, and the ways to its gateways.
	DryRun bool
}

// Register makes first contact. It may be repeated with the same keys.
func (c *Client) Register(ctx context.Context, r Registration) (auth.Grant, error) {
	if len(r.Key) != ed25519.PrivateKeySize || len(r.ClusterKey) != ed25519.PrivateKeySize {
		return auth.Grant{}, errors.New("register: a private key is missing")
	}
	grant, err := c.ask(ctx, r.Provider, asker{r.Cluster.ClusterID, r.Key}, r.DryRun, func(q auth.Question) (auth.GrantAnswer, error) {
		request := auth.RegistrationRequest{
			Cluster: r.Cluster, AuthURL: r.AuthURL, PublicKey: clusterkey.Public(r.Key), ClusterKey: clusterkey.Public(r.ClusterKey),
			Protocol: auth.ProtocolRange, DryRun: r.DryRun, Ways: r.DryRun, Question: q, TokenID: auth.TokenID(r.Secret),
		}
		if len(r.Previous) > 0 {
			replacement := request.Replacement(r.Provider.ID)
			replacement.Sign(slices.Concat(r.Previous, []ed25519.PrivateKey{r.Key, r.ClusterKey})...)
			request.Replaces = replacement.Proofs
		}
		transcript := request.Signed()
		request.Proof, request.ClusterProof = ed25519.Sign(r.Key, transcript), ed25519.Sign(r.ClusterKey, transcript)
		if r.Secret != "" {
			request.TokenProof = auth.TokenProof(r.Secret, transcript)
		}
		var answer auth.GrantAnswer
		_, err := c.do(ctx, http.MethodPost, auth.PathIdentity, request, &answer)
		return answer, err
	})
	return grant, clean(err, r.Secret)
}

// Renew requests another token. ours is the registered key.
func (c *Client) Renew(ctx context.Context, provider Provider, cluster discoveryv1alpha1.ClusterIdentity, ours ed25519.PrivateKey) (auth.Grant, error) {
	if len(ours) != ed25519.PrivateKeySize {
		return auth.Grant{}, errors.New("renew: the private key is missing")
	}
	grant, err := c.ask(ctx, provider, asker{cluster.ClusterID, ours}, false, func(q auth.Question) (auth.GrantAnswer, error) {
		request := auth.RenewalRequest{ClusterID: cluster.ClusterID, Question: q}
		request.Signature = ed25519.Sign(ours, request.Signed())
		var answer auth.GrantAnswer
		_, err := c.do(ctx, http.MethodPost, auth.PathRenewal, request, &answer)
		return answer, err
	})
	return grant, clean(err, "")
}

// asker is the requesting cluster, with its key for the provider.
type asker struct {
	id  string
	key ed25519.PrivateKey
}

// ask proves the provider, sends a request with a challenge of it, and returns the grant if the provider's key signed it.
func (c *Client) ask(ctx context.Context, provider Provider, us asker, dryRun bool, send func(auth.Question) (auth.GrantAnswer, error)) (auth.Grant, error) {
	if provider.Fingerprint == "" && !provider.Unproven {
		return auth.Grant{}, c.unproven("no fingerprint of its key is known")
	}
	private, err := auth.NewSealingKey()
	if err != nil {
		return auth.Grant{}, err
	}
	for range challengeAttempts {
		var q auth.Question
		var theirs ed25519.PublicKey
		if q, theirs, err = c.question(ctx, provider, us); err != nil {
			return auth.Grant{}, err
		}
		q.SealTo = private.Public()
		var answer auth.GrantAnswer
		if answer, err = send(q); needsChallenge(err) {
			continue // the challenge was that of another server behind this address
		} else if err != nil {
			return auth.Grant{}, err
		}
		to := auth.AnswerTo{Provider: provider.ID, Consumer: us.id, PublicKey: clusterkey.Public(us.key), Question: q}
		if !ed25519.Verify(theirs, answer.Signed(to), answer.Signature) {
			return auth.Grant{}, c.unproven("its answer is not signed with its key")
		}
		if answer.Successor != nil {
			if len(answer.Successor.Key) != ed25519.PublicKeySize || !ed25519.Verify(theirs, answer.Successor.Signed(), answer.Successor.Signature) {
				return auth.Grant{}, c.unproven("the successor of its key is not signed with its key")
			}
			theirs = answer.Successor.Key
		}
		if dryRun {
			return auth.Grant{ProviderKey: theirs, Ways: answer.Ways}, nil
		}
		token, err := private.Open(to.SealInfo(), answer.SealedToken)
		if err != nil {
			return auth.Grant{}, c.notAuthService("a token that is not sealed to this request")
		}
		grant, err := granted(answer, string(token))
		if err != nil {
			return auth.Grant{}, c.notAuthService("an invalid identity: " + err.Error())
		}
		grant.ProviderKey = theirs
		return grant, nil
	}
	return auth.Grant{}, err
}

// question gets a challenge, and proves that the service that issued it has the provider's key.
func (c *Client) question(ctx context.Context, provider Provider, us asker) (auth.Question, ed25519.PublicKey, error) {
	request := auth.ChallengeRequest{ClusterID: us.id, Provider: provider.Fingerprint, Nonce: make([]byte, auth.NonceSize)}
	_, _ = rand.Read(request.Nonce) // never fails
	request.Prove(us.key, time.Now())
	var answer auth.ChallengeAnswer
	var err error
	for range connectionAttempts {
		if _, err = c.do(ctx, http.MethodPost, auth.PathChallenge, request, &answer); !wasEnded(err) {
			break
		}
	}
	if err != nil {
		return auth.Question{}, nil, err
	}
	switch {
	case answer.Challenge == "" || len(answer.Challenge) > auth.MaxChallenge:
		return auth.Question{}, nil, c.notAuthService("an empty or too long challenge")
	case answer.ProviderKey == nil:
		return auth.Question{}, nil, &auth.Error{
			Reason:  auth.ReasonVersion,
			Message: c.url + " does not prove which cluster it belongs to, as services of older versions: upgrade Liqo in the remote cluster",
		}
	case len(answer.ProviderKey) != ed25519.PublicKeySize || !ed25519.Verify(answer.ProviderKey, answer.Signed(request), answer.Signature):
		return auth.Question{}, nil, c.unproven("it does not prove that it has the key that it sends")
	}
	print := clusterkey.Fingerprint(answer.ProviderKey)
	if provider.Fingerprint != "" && provider.Fingerprint != print {
		return auth.Question{}, nil, c.unproven(fmt.Sprintf("its key has the fingerprint %s, not %s", print, provider.Fingerprint))
	}
	return auth.Question{Provider: print, Challenge: answer.Challenge, Nonce: request.Nonce, InBand: provider.InBand}, answer.ProviderKey, nil
}

// unproven is the error for a service that may be another one in the place of the provider.
func (c *Client) unproven(what string) *auth.Error {
	return &auth.Error{Reason: auth.ReasonUnproven, Message: fmt.Sprintf("the service at %s is not proven to be that of the provider: %s. A "+
		"machine on the way may answer in its place, "+
		"or the provider has a new key: run `liqoctl generate peer-command` there, and the printed command here", c.url, what)}
}

// do sends one request. An answer that is not from an authentication service counts as ReasonUnreachable: the answer of
// a gateway in between is no statement about the peering.
func (c *Client) do(ctx context.Context, method, path string, question, answer any) (*http.Response, error) {
	var body io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "liqo")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &auth.Error{Reason: auth.ReasonUnreachable, Message: err.Error(), Cause: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &auth.Error{Reason: auth.ReasonUnreachable, Message: fmt.Sprintf("%s %s: the answer is incomplete: %v", method, c.url+path, err), Cause: err}
	case len(text) > maxAnswer:
		return nil, c.notAuthService(fmt.Sprintf("more than %d bytes", maxAnswer))
	case response.StatusCode != http.StatusOK:
		return nil, c.refusal(response, text)
	case answer == nil:
		return response, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, c.notAuthService("a body that is not the expected JSON")
	}
	return response, nil
}

// refusal decodes an answer with an error status.
func (c *Client) refusal(response *http.Response, text []byte) *auth.Error {
	var refusal auth.Error
	if err := json.Unmarshal(text, &refusal); err != nil || refusal.Code != response.StatusCode ||
		refusal.Reason == "" || refusal.Reason == auth.ReasonUnreachable || refusal.Reason == auth.ReasonUnproven {
		return c.notAuthService("HTTP status " + strconv.Itoa(response.StatusCode))
	}
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16); err == nil {
		refusal.RetryAfter = time.Duration(seconds) * time.Second
	}
	return &refusal
}

// notAuthService is the error of an answer that no honest authentication service sends.
func (c *Client) notAuthService(what string) *auth.Error {
	return &auth.Error{
		Reason:  auth.ReasonUnreachable,
		Message: fmt.Sprintf("%s answered with %s; check that this is the URL of the authentication service of a Liqo cluster", c.url, what),
	}
}

// wasEnded reports whether the connection ended before there was an answer.
func wasEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func needsChallenge(err error) bool {
	var refusal *auth.Error
	return errors.As(err, &refusal) && refusal.Reason == auth.ReasonChallenge
}
