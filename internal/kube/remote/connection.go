// SPDX-License-Identifier: Apache-2.0

// Package remote holds the link to another cluster: the identity in its Secret, and a connection whose token is
// renewed in place, whose calls all have deadlines and whose health can be asked.
//
// It must not know what the link is used for. Its proof is connection_test.go, against a real API server, and the
// fuzz test of the Secret.
package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"liqo.io/liqo/internal/kube/version"
)

const (
	// dialTimeout leaves, within the deadline of a call, time for the call.
	dialTimeout = 5 * time.Second
	keepAlive   = 15 * time.Second
	// noticing is about what the pool of connections takes to drop one that was closed.
	noticing = time.Millisecond

	qps, burst = 100, 200
)

// ErrUnauthorized says that the other cluster does not take our token (401).
var ErrUnauthorized = errors.New("the remote API server does not accept our token")

// Connection is a link to another cluster.
type Connection struct {
	scheme *runtime.Scheme
	token  atomic.Pointer[string]

	mu       sync.Mutex
	identity Identity
	ends     ends
}

// ends is what must be made anew when the address changes.
type ends struct {
	config *rest.Config
	http   *http.Client
	mapper meta.RESTMapper
	client client.WithWatch
	dialer *connrotation.Dialer
	// streams and lines are for Streams.
	streams http.RoundTripper
	lines   *connrotation.Dialer
}

// NewConnection prepares the link; it sends nothing.
func NewConnection(i Identity, scheme *runtime.Scheme) (*Connection, error) {
	c := &Connection{scheme: scheme, identity: i}
	c.token.Store(&i.Token)
	var err error
	if c.ends, err = c.connect(i); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Connection) connect(i Identity) (ends, error) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	config := &rest.Config{
		Host: i.APIServerURL, TLSClientConfig: rest.TLSClientConfig{CAData: bytes.Clone(i.APIServerCA)},
		UserAgent: "liqo/" + version.Version, QPS: qps, Burst: burst, Dial: dialer.DialContext,
		// What another cluster's API server advises, nobody here can follow.
		WarningHandler: rest.NoWarnings{},
		// A megabyte of zeros is a kilobyte, and the other side decides what it sends.
		DisableCompression: true,
	}
	if i.ProxyURL != "" {
		proxy, err := url.Parse(i.ProxyURL)
		if err != nil {
			return ends{}, errors.New("the URL of the proxy cannot be read") // it may hold a password
		}
		config.Proxy = http.ProxyURL(proxy)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, token: &c.token} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return ends{}, fmt.Errorf("prepare the connection to %s: %w", i.APIServerURL, err)
	}
	// An API server has no reason to send us elsewhere, and our token must not go there.
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return ends{}, fmt.Errorf("prepare the connection to %s: %w", i.APIServerURL, err)
	}
	made, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient, Scheme: c.scheme, Mapper: mapper})
	if err != nil {
		return ends{}, fmt.Errorf("prepare the client of %s: %w", i.APIServerURL, err)
	}
	streams, lines, err := c.streams(config)
	if err != nil {
		return ends{}, err
	}
	return ends{config: config, http: httpClient, mapper: mapper, client: made, dialer: dialer, streams: streams, lines: lines}, nil
}

// streams is the transport of Streams.
func (c *Connection) streams(config *rest.Config) (http.RoundTripper, *connrotation.Dialer, error) {
	lines := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	config = rest.CopyConfig(config)
	config.Dial = lines.DialContext
	// A request that changes the protocol needs a connection of its own.
	config.NextProtos = []string{"http/1.1"}
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &transport{next: next, token: &c.token, endless: true}
	}
	made, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the streams to %s: %w", config.Host, err)
	}
	return made, lines, nil
}

func (c *Connection) current() ends {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends
}

// Client reads and writes over there, without a cache. Every request but a stream has a deadline of 10 seconds.
func (c *Connection) Client() client.WithWatch { return c.current().client }

// Config is for those who bring their own client. It carries no token: its transport adds the current one.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.current().config) }

// HTTPClient shares its connections with Client: hand it to caches and clients made from Config.
func (c *Connection) HTTPClient() *http.Client { return c.current().http }

// Mapper knows the kinds over there; it asks when it must.
func (c *Connection) Mapper() meta.RESTMapper { return c.current().mapper }

// Namespace is our tenant namespace over there.
func (c *Connection) Namespace() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.Namespace
}

// Update takes a changed identity over. A new token is used from the next request on, nothing is interrupted. If
// the address changed, Client and Config are new ones (restarted), and what was made from the old ones must go.
func (c *Connection) Update(i Identity) (restarted bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := i.APIServerURL != c.identity.APIServerURL || i.ProxyURL != c.identity.ProxyURL ||
		i.Namespace != c.identity.Namespace || !bytes.Equal(i.APIServerCA, c.identity.APIServerCA)
	if moved {
		made, err := c.connect(i)
		if err != nil {
			return false, err
		}
		c.ends.dialer.CloseAll()
		c.ends.lines.CloseAll()
		c.ends = made
	}
	c.token.Store(&i.Token)
	c.identity = i
	return moved, nil
}

// Streams is the way for requests whose answers go on for as long as somebody listens, and may change the protocol: the URL of the API
// server, and a transport that speaks HTTP/1.1. The deadline of a call holds until the first line of the answer. Reset leaves these
// connections alone: people sit before them.
func (c *Connection) Streams() (string, http.RoundTripper) {
	ends := c.current()
	return ends.config.Host, ends.streams
}

// Reset closes all connections; watches and calls under way fail and dial again. A call that meets a connection
// which died silently would otherwise wait for its deadline, and so would the next.
func (c *Connection) Reset() { c.current().dialer.CloseAll() }

// Probe asks the other API server whether it is alive. The caller sets the deadline.
func (c *Connection) Probe(ctx context.Context) error {
	for {
		err := c.probe(ctx)
		if !errors.Is(err, net.ErrClosed) {
			return err
		}
		// We closed that connection ourselves (Reset), which its pool had not noticed yet. It says nothing of the server.
		select {
		case <-time.After(noticing):
		case <-ctx.Done():
			return err
		}
	}
}

func (c *Connection) probe(ctx context.Context) error {
	ends := c.current()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(ends.config.Host, "/")+"/livez", nil)
	if err != nil {
		return err
	}
	response, err := ends.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	switch response.StatusCode {
	case http.StatusOK, http.StatusForbidden: // who may not ask knows from the answer that somebody is there
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("GET /livez: %w", ErrUnauthorized)
	}
	return fmt.Errorf("GET /livez was answered with %s", Answer(response.StatusCode))
}

// Answer is the code of a response in words of ours: those that came with it are the other side's, and as long as that likes.
func Answer(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
