// SPDX-License-Identifier: Apache-2.0

// Package remote holds the connection to another cluster: the identity in a Secret, and clients whose token is renewed
// in place, whose calls all have deadlines and whose health can be probed.
//
// It must not know what the connection is used for. connection_test.go proves it against a real API server, and a fuzz
// test covers the Secret.
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
	// dropTime is about how long the connection pool takes to drop a closed connection.
	dropTime = time.Millisecond

	qps, burst = 100, 200
)

// ErrUnauthorized means that the other cluster does not accept our token (401).
var ErrUnauthorized = errors.New("the remote API server does not accept our token")

// Connection is a connection to the API server of another cluster.
type Connection struct {
	scheme *runtime.Scheme
	token  atomic.Pointer[string]

	mu       sync.Mutex
	identity Identity
	parts    parts
}

// parts is replaced as a whole when the address changes.
type parts struct {
	config *rest.Config
	http   *http.Client
	mapper meta.RESTMapper
	client client.WithWatch
	dialer *connrotation.Dialer
	// streams is the transport of Streams, with its own dialer.
	streams       http.RoundTripper
	streamsDialer *connrotation.Dialer
}

// NewConnection prepares the connection; it sends nothing.
func NewConnection(i Identity, scheme *runtime.Scheme) (*Connection, error) {
	c := &Connection{scheme: scheme, identity: i}
	c.token.Store(&i.Token)
	var err error
	if c.parts, err = c.connect(i); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Connection) connect(i Identity) (parts, error) {
	dialer := connrotation.NewDialer(i.dial())
	config := &rest.Config{
		Host: i.APIServerURL, TLSClientConfig: rest.TLSClientConfig{CAData: bytes.Clone(i.APIServerCA)},
		UserAgent: "liqo/" + version.Version, QPS: qps, Burst: burst, Dial: dialer.DialContext,
		// The warnings are for the users of the other cluster.
		WarningHandler: rest.NoWarnings{},
		// The other side decides what it sends: a kilobyte may decompress to a megabyte.
		DisableCompression: true,
	}
	if i.ProxyURL != "" {
		proxy, err := url.Parse(i.ProxyURL)
		if err != nil {
			return parts{}, errors.New("the URL of the proxy is invalid") // do not quote it: it may hold a password
		}
		config.Proxy = http.ProxyURL(proxy)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, token: &c.token} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return parts{}, fmt.Errorf("prepare the connection to %s: %w", i.APIServerURL, err)
	}
	// An API server does not redirect, and our token must not reach another server.
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return parts{}, fmt.Errorf("prepare the connection to %s: %w", i.APIServerURL, err)
	}
	made, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient, Scheme: c.scheme, Mapper: mapper})
	if err != nil {
		return parts{}, fmt.Errorf("prepare the client of %s: %w", i.APIServerURL, err)
	}
	streams, streamsDialer, err := c.streams(config, i.dial())
	if err != nil {
		return parts{}, err
	}
	return parts{config: config, http: httpClient, mapper: mapper, client: made, dialer: dialer, streams: streams, streamsDialer: streamsDialer}, nil
}

// streams returns the transport of Streams and its dialer.
func (c *Connection) streams(config *rest.Config, dial connrotation.DialFunc) (http.RoundTripper, *connrotation.Dialer, error) {
	dialer := connrotation.NewDialer(dial)
	config = rest.CopyConfig(config)
	config.Dial = dialer.DialContext
	// A request that upgrades the protocol needs its own connection.
	config.NextProtos = []string{"http/1.1"}
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &transport{next: next, token: &c.token, endless: true}
	}
	made, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the streams to %s: %w", config.Host, err)
	}
	return made, dialer, nil
}

// dial is how connections are opened.
func (i Identity) dial() connrotation.DialFunc {
	if i.Dial != nil {
		return i.Dial
	}
	return (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
}

func (c *Connection) current() parts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts
}

// Client returns a client of the other API server without a cache. Every request except streams has a deadline of 10 seconds.
func (c *Connection) Client() client.WithWatch { return c.current().client }

// Config returns a configuration for other clients. It holds no token: its transport adds the current one to each request.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.current().config) }

// HTTPClient returns the HTTP client of Client. Pass it to caches and clients made from Config, so that they share its connections.
func (c *Connection) HTTPClient() *http.Client { return c.current().http }

// Mapper returns a mapper of the kinds in the other cluster, which it discovers on demand.
func (c *Connection) Mapper() meta.RESTMapper { return c.current().mapper }

// Namespace returns our tenant namespace in the other cluster.
func (c *Connection) Namespace() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.Namespace
}

// Update switches to a changed identity. A new token is used from the next request on and interrupts nothing. If the
// address changed, Update returns restarted: Client and Config are new, and the caller must drop what it made from the
// old ones.
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
		c.parts.dialer.CloseAll()
		c.parts.streamsDialer.CloseAll()
		c.parts = made
	}
	c.token.Store(&i.Token)
	c.identity = i
	return moved, nil
}

// Streams returns the URL of the API server, and an HTTP/1.1 transport for requests whose responses last as long as the client listens, and
// which may upgrade the protocol. The deadline of a call holds until the first line of the response. Reset does not close these connections:
// interactive users depend on them.
func (c *Connection) Streams() (string, http.RoundTripper) {
	current := c.current()
	return current.config.Host, current.streams
}

// Reset closes all connections; running watches and calls fail, and later ones dial again. Without it, a call on a
// connection that died silently waits for its deadline, and so does the next call.
func (c *Connection) Reset() { c.current().dialer.CloseAll() }

// Probe requests /livez of the other API server. The caller sets the deadline.
func (c *Connection) Probe(ctx context.Context) error {
	for {
		err := c.probe(ctx)
		if !errors.Is(err, net.ErrClosed) {
			return err
		}
		// Reset closed this connection, and the pool has not dropped it yet. The error is no evidence about the server.
		select {
		case <-time.After(dropTime):
		case <-ctx.Done():
			return err
		}
	}
}

// maxProbe bounds the answer to a probe, in bytes. An API server answers "ok", or names what has failed.
const maxProbe = 64 << 10

func (c *Connection) probe(ctx context.Context) error {
	current := c.current()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(current.config.Host, "/")+"/livez", nil)
	if err != nil {
		return err
	}
	response, err := current.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	length, _ := io.Copy(io.Discard, io.LimitReader(response.Body, maxProbe+1)) // so that the connection can be reused
	if length > maxProbe {
		return fmt.Errorf("GET /livez was answered with more than %d bytes, and not as an API server does", maxProbe)
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusForbidden: // a refusal also proves that the API server is alive
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("GET /livez: %w", ErrUnauthorized)
	}
	return fmt.Errorf("GET /livez was answered with %s", Answer(response.StatusCode))
}

// Answer returns the code of a response with its standard text. The text that came with the response is controlled by the other side, which
// may send any characters and any length.
func Answer(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
