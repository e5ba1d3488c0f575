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
	// tryTime is how long one endpoint may take to answer, with two handshakes.
	tryTime = 7 * time.Second
	// keepalive keeps NAT on the way open, in seconds.
	keepalive = 5
)

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
	if w.device != nil {
		w.device.Close()
		w.device, w.net = nil, nil
	}
}

// dial opens a connection to the proxy. If the endpoint in use does not answer, it tries the next one.
func (w *way) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var failed error
	for range w.invite.Endpoints {
		stack, endpoint, err := w.start(ctx)
		if err != nil {
			failed = err
		} else {
			attempt, cancel := context.WithTimeout(ctx, tryTime)
			connection, err := stack.DialContextTCPAddrPort(attempt, w.invite.Proxy)
			cancel()
			if err == nil {
				return connection, nil
			}
			failed = fmt.Errorf("no answer through the gateway of the provider at UDP %s; the invitation may have been used, have expired or been withdrawn: %w", endpoint, err)
		}
		if ctx.Err() != nil {
			break
		}
		w.skip(endpoint)
	}
	return nil, failed
}

// skip makes the next attempt use another endpoint than the one that has failed.
func (w *way) skip(failed string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endpoint() != failed {
		return // another connection has moved on
	}
	w.next++
	if w.device != nil && len(w.invite.Endpoints) > 1 {
		w.device.Close()
		w.device, w.net = nil, nil
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
