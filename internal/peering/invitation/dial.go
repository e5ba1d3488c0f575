// SPDX-License-Identifier: Apache-2.0

package invitation

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

const (
	// mtu passes any network that the tunnels of Liqo pass.
	mtu = 1280
	// keepalive keeps NAT on the way open, in seconds.
	keepalive = 5
)

// tries are how long an endpoint may take to answer. Each has a tunnel of its own until one has answered: WireGuard repeats a lost handshake only
// after 5 s, and the first one is lost if the gateway of the provider learns of the invitation at that moment.
var tries = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// Dialer opens connections.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Ways are the ways to providers that invited this cluster. They are open while they are used, until Close.
type Ways struct {
	// here: gateways may be on this host, for tests.
	here bool

	mu   sync.Mutex
	open map[string]*way
}

// way is the tunnel to one provider.
type way struct {
	text   string
	invite Invitation
	here   bool

	mu     sync.Mutex
	device *device.Device
	net    *netstack.Net
	// answered: a connection was opened through net.
	answered bool
	// next is the endpoint to try next.
	next   int
	closed bool
}

// Dial returns a function that opens connections to the proxy of a provider, whichever address it is asked for.
func (w *Ways) Dial(provider string, i Invitation) Dialer {
	text := i.String()
	w.mu.Lock()
	have := w.open[provider]
	if have != nil && have.text == text {
		w.mu.Unlock()
		return have.dial
	}
	if w.open == nil {
		w.open = map[string]*way{}
	}
	made := &way{text: text, invite: i, here: w.here}
	w.open[provider] = made
	w.mu.Unlock()
	have.close()
	return made.dial
}

// Close ends the way to a provider, and the connections over it.
func (w *Ways) Close(provider string) {
	w.mu.Lock()
	have := w.open[provider]
	delete(w.open, provider)
	w.mu.Unlock()
	have.close()
}

// close ends a way, if there is one, for good. It may wait for a lookup of the provider's gateway, so it is called without the lock of all ways.
func (w *way) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.stop()
}

// dial opens a connection to the proxy. If the endpoint in use does not answer, it tries the next one.
func (w *way) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var failed error
	for range w.invite.Endpoints {
		connection, endpoint, err := w.through(ctx)
		if err == nil {
			return connection, nil
		}
		failed = err
		if ctx.Err() != nil {
			break
		}
		w.skip(endpoint)
	}
	return nil, failed
}

// through opens a connection through the endpoint in use.
func (w *way) through(ctx context.Context) (connection net.Conn, endpoint string, err error) {
	for _, timeout := range tries {
		var stack *netstack.Net
		if stack, endpoint, err = w.start(ctx); err != nil {
			return nil, endpoint, err
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		connection, err = stack.DialContextTCPAddrPort(attempt, w.invite.Proxy)
		cancel()
		w.note(stack, err == nil)
		if err == nil {
			return connection, endpoint, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, endpoint, fmt.Errorf(
		"no answer through the gateway of the provider at UDP %s; the invitation may have been used, have expired or been withdrawn: %w",
		endpoint, err,
	)
}

// note ends a tunnel that has never answered: the next try makes another one. One that has answered may carry other connections.
func (w *way) note(stack *netstack.Net, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.net != stack: // another connection has moved on
	case answered:
		w.answered = true
	case !w.answered:
		w.stop()
	}
}

// stop ends the tunnel in use, if there is one. The caller holds the lock.
func (w *way) stop() {
	if w.device != nil {
		w.device.Close()
		w.device, w.net, w.answered = nil, nil, false
	}
}

// skip makes the next attempt use another endpoint than the one that has failed.
func (w *way) skip(failed string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endpoint() != failed {
		return // another connection has moved on
	}
	w.next++
	w.answered = false
	if len(w.invite.Endpoints) > 1 {
		w.stop()
	}
}

var errClosed = errors.New("this way to the provider was closed, because the invitation ended or another one replaced it")

func (w *way) endpoint() string { return w.invite.Endpoints[w.next%len(w.invite.Endpoints)] }

// start returns the network of the tunnel, and the endpoint that it uses.
func (w *way) start(ctx context.Context) (*netstack.Net, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	endpoint := w.endpoint()
	if w.closed {
		return nil, endpoint, errClosed
	}
	if w.net != nil {
		return w.net, endpoint, nil
	}
	at, err := resolve(ctx, endpoint)
	if err == nil && !w.here && !at.Addr().IsGlobalUnicast() {
		err = fmt.Errorf("the gateway of the provider cannot be at %s", at.Addr())
	}
	if err != nil {
		return nil, endpoint, err
	}
	inside, stack, err := netstack.CreateNetTUN([]netip.Addr{w.invite.Address}, nil, mtu)
	if err != nil {
		return nil, endpoint, fmt.Errorf("make the network of the invitation: %w", err)
	}
	made := device.NewDevice(inside, conn.NewDefaultBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: device.DiscardLogf})
	if err := errors.Join(made.IpcSet(w.settings(at)), made.Up()); err != nil {
		made.Close()
		return nil, endpoint, errors.New("WireGuard does not accept the invitation") // its error may repeat keys
	}
	w.device, w.net = made, stack
	return stack, endpoint, nil
}

func (w *way) settings(endpoint netip.AddrPort) string {
	return fmt.Sprintf("private_key=%s\npublic_key=%s\nendpoint=%s\nallowed_ip=%s/32\npersistent_keepalive_interval=%d\n",
		hex.EncodeToString(w.invite.PrivateKey), hex.EncodeToString(w.invite.PublicKey), endpoint, w.invite.Proxy.Addr(), keepalive)
}

func resolve(ctx context.Context, endpoint string) (netip.AddrPort, error) {
	name, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("the endpoint %.80q is not HOST:PORT", endpoint)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("look up the gateway of the provider: %w", err)
	}
	if len(found) == 0 {
		return netip.AddrPort{}, fmt.Errorf("the gateway %.80q of the provider has no IPv4 address", name)
	}
	return netip.ParseAddrPort(net.JoinHostPort(found[0].Unmap().String(), endpoint[strings.LastIndexByte(endpoint, ':')+1:]))
}
