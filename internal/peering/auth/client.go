// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
)

const (
	// defaultTimeout includes the time in which the provider creates the tenant.
	defaultTimeout = tenantDeadline + 5*time.Second
	// maxAnswer is much more than the longest honest answer, which has a bundle of certificates.
	maxAnswer = 256 << 10
	// challengeAttempts is more than one because several servers may share an address, and each accepts only its own
	// challenges.
	challengeAttempts = 4
)

// ClientOptions configure the connection to a provider.
type ClientOptions struct {
	// InsecureSkipTLSVerify accepts any certificate. IDs still reports the problems of the certificate.
	InsecureSkipTLSVerify bool
	// ProxyURL is that of an HTTP CONNECT proxy; empty for none.
	ProxyURL string
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
func NewClient(authURL string, o ClientOptions) (*Client, error) {
	parsed, err := url.Parse(authURL)
	// The error must not repeat the URL, which may have a password.
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("the URL of the authentication service must look like https://HOST or https://HOST:PORT")
	}
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.InsecureSkipTLSVerify}, //nolint:gosec // the user's choice
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: defaultTimeout,
		IdleConnTimeout:       10 * time.Second,
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

// Close closes idle connections. Without it they close after ten seconds.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Registration is a consumer's request on first contact.
type Registration struct {
	// Cluster is the consumer.
	Cluster discoveryv1alpha1.ClusterIdentity
	// AuthURL is that of the consumer's own service; empty if the provider cannot reach it.
	AuthURL string
	// Token is the pre-shared token of the provider.
	Token string
	// Key is that of the consumer for this provider, and used with no other; see package key.
	Key ed25519.PrivateKey
	// DryRun checks the token and the input, and changes nothing. The grant is then empty.
	DryRun bool
}

// Register makes first contact. It may be repeated with the same key.
func (c *Client) Register(ctx context.Context, r Registration) (Grant, error) {
	if len(r.Key) != ed25519.PrivateKeySize {
		return Grant{}, errors.New("register: the private key is missing")
	}
	public, _ := r.Key.Public().(ed25519.PublicKey) // always this type
	request := registrationRequest{
		Cluster: r.Cluster, AuthURL: r.AuthURL, Token: r.Token, PublicKey: public, Protocol: ProtocolRange, DryRun: r.DryRun,
	}
	attempt := func() (Grant, error) {
		request.Proof = ed25519.Sign(r.Key, request.signed())
		if r.DryRun {
			_, err := c.do(ctx, http.MethodPost, pathIdentity, request, nil)
			return Grant{}, err
		}
		return c.grant(ctx, pathIdentity, request)
	}
	grant, err := attempt()
	for range challengeAttempts {
		if !needsChallenge(err) {
			break
		}
		if request.Challenge, err = c.challenge(ctx, r.Cluster.ClusterID); err != nil {
			break
		}
		grant, err = attempt()
	}
	return grant, clean(err, r.Token)
}

// Renew requests another token. key is the registered one.
func (c *Client) Renew(ctx context.Context, cluster discoveryv1alpha1.ClusterIdentity, key ed25519.PrivateKey) (grant Grant, err error) {
	if len(key) != ed25519.PrivateKeySize {
		return Grant{}, errors.New("renew: the private key is missing")
	}
	for range challengeAttempts {
		request := renewalRequest{ClusterID: cluster.ClusterID}
		if request.Challenge, err = c.challenge(ctx, cluster.ClusterID); err != nil {
			break
		}
		request.Signature = ed25519.Sign(key, request.signed())
		if grant, err = c.grant(ctx, pathRenewal, request); !needsChallenge(err) {
			break
		}
	}
	return grant, clean(err, "")
}

func (c *Client) challenge(ctx context.Context, clusterID string) (string, error) {
	var answer challengeAnswer
	if _, err := c.do(ctx, http.MethodPost, pathChallenge, challengeRequest{ClusterID: clusterID}, &answer); err != nil {
		return "", err
	}
	if answer.Challenge == "" || len(answer.Challenge) > maxChallenge {
		return "", c.notAuthService("an empty or too long challenge")
	}
	return answer.Challenge, nil
}

func (c *Client) grant(ctx context.Context, path string, request any) (Grant, error) {
	var answer grantAnswer
	if _, err := c.do(ctx, http.MethodPost, path, request, &answer); err != nil {
		return Grant{}, err
	}
	grant, err := answer.grant()
	if err != nil {
		return Grant{}, c.notAuthService("an invalid identity: " + err.Error())
	}
	return grant, nil
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
		return nil, &Error{Reason: ReasonUnreachable, Message: err.Error(), cause: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &Error{Reason: ReasonUnreachable, Message: fmt.Sprintf("%s %s: the answer is incomplete: %v", method, c.url+path, err), cause: err}
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
func (c *Client) refusal(response *http.Response, text []byte) *Error {
	var refusal Error
	if err := json.Unmarshal(text, &refusal); err != nil || refusal.Code != response.StatusCode || refusal.Reason == "" || refusal.Reason == ReasonUnreachable {
		return c.notAuthService("HTTP status " + strconv.Itoa(response.StatusCode))
	}
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16); err == nil {
		refusal.RetryAfter = time.Duration(seconds) * time.Second
	}
	return &refusal
}

// notAuthService is the error of an answer that no honest authentication service sends.
func (c *Client) notAuthService(what string) *Error {
	return &Error{Reason: ReasonUnreachable, Message: fmt.Sprintf("%s answered with %s; check that this is the URL of the authentication service of a Liqo cluster", c.url, what)}
}

func needsChallenge(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Reason == ReasonChallenge
}
