// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"
)

const (
	// HelloTime bounds the proof of both ends, and what comes before it: TLS, and the upgrade to a WebSocket.
	HelloTime = 5 * time.Second
	// Silence is after how long without a sign of the other end a stream is given up.
	Silence = 5 * time.Second
)

// Kind is what carries the datagrams.
type Kind string

// The kinds, in the order of preference.
const (
	UDP       Kind = "UDP"
	TLS       Kind = "TLS"
	WebSocket Kind = "WebSocket"
)

// Protocol is the name in the ALPN extension of TLS, and of the subprotocol of the WebSocket.
const Protocol = "liqo-tunnel"

// Target is where a stream is dialled.
type Target struct {
	Kind Kind
	// Host is an address or a DNS name.
	Host string
	Port uint16
	// Path of the WebSocket, with a slash in front. Plain leaves TLS out, for a WebSocket only.
	Path  string
	Plain bool
	// Proxy returns the HTTP proxy for a host and port, nil for none. A nil function is none.
	Proxy func(hostPort string) (*url.URL, error)
	// Refuse returns why an address is not dialled, for a name that a peer chose; nil for no refusals.
	Refuse func(netip.Addr) error
	// Resolve looks up a name before a proxy gets it: the proxy would look it up in its own network, where a peer could name any host. Nil: the proxy does.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
}

// ProxyFrom returns the proxy of the files HTTPS_PROXY and NO_PROXY in a folder, into which a Secret is mounted. They are read at each attempt, so
// changes count at once. Without a folder, the variables of these names count.
func ProxyFrom(folder string) func(hostPort string) (*url.URL, error) {
	return func(hostPort string) (*url.URL, error) {
		if folder == "" {
			return httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: hostPort})
		}
		var texts [2]string
		for i, name := range []string{"HTTPS_PROXY", "NO_PROXY"} {
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			texts[i] = strings.TrimSpace(string(text))
		}
		if texts[0] == "" {
			return nil, ErrNoProxy
		}
		config := httpproxy.Config{HTTPSProxy: texts[0], NoProxy: texts[1]}
		return config.ProxyFunc()(&url.URL{Scheme: "https", Host: hostPort})
	}
}

var ErrNoProxy = errors.New("the Secret with the HTTP proxy has no key HTTPS_PROXY")

// String has no credentials.
func (t Target) String() string {
	scheme := map[Kind]string{UDP: "udp", TLS: "tls", WebSocket: "wss"}[t.Kind]
	if t.Plain {
		scheme = "ws"
	}
	return scheme + "://" + t.HostPort() + t.Path
}

// Failure is why a target could not be dialled. Its text has no port of this end, which differs each time: it becomes part of a status.
type Failure struct {
	Target Target
	Cause  error
}

func (f *Failure) Unwrap() error { return f.Cause }

func (f *Failure) Error() string {
	text := f.Cause.Error()
	var low *net.OpError
	if errors.As(f.Cause, &low) && low.Source != nil {
		text = strings.ReplaceAll(text, low.Error(), low.Op+": "+low.Err.Error())
	}
	return fmt.Sprintf("dial %s: %s", f.Target, text)
}

func (t Target) HostPort() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// Dial connects to a target. raw is the TCP connection under conn.
func Dial(ctx context.Context, t Target) (conn, raw net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, HelloTime)
	defer cancel()
	if conn, raw, err = Connect(ctx, t); err != nil {
		return nil, nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = raw.SetDeadline(deadline)
	if !t.Plain {
		config := OuterTLS(t.Host)
		if t.Kind == TLS {
			config.NextProtos = []string{Protocol}
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, nil, fmt.Errorf("TLS: %w", err)
		}
		conn = secure
	}
	if t.Kind == WebSocket {
		if conn, err = upgrade(ctx, t, conn); err != nil {
			_ = raw.Close()
			return nil, nil, err
		}
	}
	return conn, raw, nil
}

// OuterTLS accepts any certificate: the other end proves itself inside, with its WireGuard key, and an ingress controller or a proxy may end this TLS anyway.
func OuterTLS(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: true} //nolint:gosec // see above
}

// maxAnswer bounds the answer of a proxy to CONNECT, in bytes.
const maxAnswer = 16 << 10

// Connect opens a TCP connection to a target, through the proxy if there is one.
func Connect(ctx context.Context, t Target) (conn, raw net.Conn, err error) {
	var proxy *url.URL
	if t.Proxy != nil {
		if proxy, err = t.Proxy(t.HostPort()); errors.Is(err, ErrNoProxy) {
			return nil, nil, err
		} else if err != nil {
			return nil, nil, errors.New("the URL of the HTTP proxy is not valid") // it may have a password
		}
	}
	address := t.HostPort()
	if proxy != nil {
		address = proxyAddress(proxy)
	}
	var dialer net.Dialer
	target := t.HostPort()
	if proxy == nil {
		dialer.Control = t.Control()
	} else if target, err = t.resolved(ctx); err != nil {
		return nil, nil, err
	}
	if raw, err = dialer.DialContext(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	Tune(raw)
	raw = &Ahead{Conn: raw}
	if proxy == nil {
		return raw, raw, nil
	}
	if conn, err = through(ctx, raw, proxy, target); err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("HTTP proxy %s: %w", address, err)
	}
	return conn, raw, nil
}

// resolved returns the address and port that a proxy is asked for.
func (t Target) resolved(ctx context.Context) (string, error) {
	if _, err := netip.ParseAddr(t.Host); err == nil || t.Resolve == nil {
		return t.HostPort(), nil // an address has been checked before
	}
	addresses, err := t.Resolve(ctx, t.Host)
	if err != nil {
		return "", fmt.Errorf("look up %.70q for the HTTP proxy: %w", t.Host, err)
	}
	refused := fmt.Errorf("look up %.70q for the HTTP proxy: DNS returns no address", t.Host)
	for _, address := range addresses {
		if t.Refuse != nil {
			if err := t.Refuse(address.Unmap()); err != nil {
				refused = err
				continue
			}
		}
		return netip.AddrPortFrom(address.Unmap(), t.Port).String(), nil
	}
	return "", refused
}

// Control refuses addresses; nil if none are refused.
func (t Target) Control() func(network, address string, c syscall.RawConn) error {
	if t.Refuse == nil {
		return nil
	}
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return t.Refuse(at.Addr().Unmap())
	}
}

func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[proxy.Scheme == "https"]
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}

// through has a proxy connect to an address.
func through(ctx context.Context, conn net.Conn, proxy *url.URL, address string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	switch proxy.Scheme {
	case "http":
	case "https":
		secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: proxy.Hostname()})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		conn = secure
	default:
		return nil, fmt.Errorf("scheme %.20q; want http or https", proxy.Scheme)
	}
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{"User-Agent": {"liqo"}}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	bounded := &io.LimitedReader{R: conn, N: maxAnswer}
	reader := bufio.NewReaderSize(bounded, 4<<10)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, fmt.Errorf("no answer to CONNECT: %w", err)
	}
	_ = response.Body.Close() // there is none
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CONNECT: %.100s", response.Status)
	}
	if n := reader.Buffered(); n > 0 {
		first, _ := reader.Peek(n)
		return &Replayed{Conn: conn, First: first}, nil
	}
	return conn, nil
}

// upgrade makes a connection a WebSocket that is used as a stream of bytes.
func upgrade(ctx context.Context, t Target, conn net.Conn) (net.Conn, error) {
	under := &Gathering{Conn: conn}
	once := func(context.Context, string, string) (net.Conn, error) { return under, nil }
	transport := &http.Transport{DialContext: once, DialTLSContext: once, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer}
	at := url.URL{Scheme: "https", Host: t.HostPort(), Path: t.Path}
	if t.Plain {
		at.Scheme = "http"
	}
	socket, response, err := websocket.Dial(ctx, at.String(), &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Subprotocols: []string{Protocol}, CompressionMode: websocket.CompressionDisabled,
	})
	switch {
	case response != nil && response.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("HTTP status %d instead of a WebSocket", response.StatusCode)
	case err != nil:
		return nil, fmt.Errorf("WebSocket: %w", err)
	}
	return NewBytesOver(socket, under), nil
}

// Tune keeps the kernel from queueing more than it can send: WireGuard's datagrams are to be dropped, not delayed.
func Tune(conn net.Conn) {
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return
	}
	const unsent = 64 << 10 // bytes
	_ = tcp.SetNoDelay(true)
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without them it only works less well
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Silence/time.Millisecond))
	})
}
