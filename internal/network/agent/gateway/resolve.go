// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/plan"
)

const (
	// lookupTimeout ends a DNS query; lookupRetry is the pause before the next one while a tunnel is silent or the last query failed.
	lookupTimeout = 2 * time.Second
	lookupRetry   = 5 * time.Second
	// maxNames bounds the names of one peer that are looked up.
	maxNames = 8
	// maxAddresses bounds the addresses of one name that are tried.
	maxAddresses = 8
)

// resolver looks up names in the background, so that no caller waits.
type resolver struct {
	lookup  func(ctx context.Context, name string) ([]netip.Addr, error)
	changed func()

	mu    sync.Mutex
	names map[string]*resolved
}

type resolved struct {
	addresses []netip.Addr
	err       error
	asked     time.Time
	asking    bool
}

// addresses returns the known addresses of a host, which is a name or an address. Without trouble the last answer stays, because it works.
func (r *resolver) addresses(now time.Time, host string, trouble bool) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		if err := dialable(address.Unmap()); err != nil {
			return nil, err
		}
		return []netip.Addr{address.Unmap()}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.names[host]
	if known == nil {
		known = &resolved{}
		if r.names == nil {
			r.names = map[string]*resolved{}
		}
		r.names[host] = known
	}
	if !known.asking && (known.asked.IsZero() || (trouble || known.err != nil) && now.Sub(known.asked) >= lookupRetry) {
		known.asking, known.asked = true, now
		go r.ask(host, known)
	}
	return known.addresses, known.err
}

// targets returns the UDP addresses of a peer's gateway.
func (g *Gateway) targets(now time.Time, l laneInputs, trouble bool) (all []netip.AddrPort, wrong error) {
	names := 0
	for _, endpoint := range l.endpoints {
		if endpoint.Kind != netv1alpha1.CarrierUDP {
			continue
		}
		if _, err := netip.ParseAddr(endpoint.Host); err != nil {
			if names++; names > maxNames {
				wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: only %d names are looked up", endpoint.Host, maxNames))
				continue
			}
		}
		addresses, err := g.resolver.addresses(now, endpoint.Host, trouble)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: %w", endpoint.Host, err))
		}
		for _, address := range addresses {
			if err := l.off.refuse(address, endpoint.Host); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("endpoint %.70s: %w", endpoint.Host, err))
				continue
			}
			if target := netip.AddrPortFrom(address, endpoint.Port); !slices.Contains(all, target) {
				all = append(all, target)
			}
		}
	}
	return all, wrong
}

// keep forgets the names that no peer uses any more.
func (r *resolver) keep(peers map[string]agent.PeerView, lane int) {
	wanted := map[string]bool{}
	for _, one := range peers {
		for _, endpoint := range one.Endpoints[lane] {
			wanted[endpoint.Host] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.names, func(name string, _ *resolved) bool { return !wanted[name] })
}

func (r *resolver) ask(host string, known *resolved) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	found, err := r.lookup(ctx, absolute(host))
	var good []netip.Addr
	for _, address := range found {
		if refused := dialable(address.Unmap()); refused != nil {
			err = refused
			continue
		}
		good = append(good, address.Unmap())
	}
	slices.SortFunc(good, func(a, b netip.Addr) int {
		if a.Is4() != b.Is4() {
			if a.Is4() {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	good = slices.Compact(good)
	r.mu.Lock()
	known.asking, known.err = false, nil
	switch {
	case len(good) > 0:
		known.addresses = good[:min(len(good), maxAddresses)]
	case err != nil:
		known.err = fmt.Errorf("look up %q: %w", host, err) // the old addresses stay
	default:
		known.err = fmt.Errorf("look up %q: DNS returns no address", host)
	}
	r.mu.Unlock()
	r.changed()
}

// resolve looks up names for a proxy; nil: the proxy does.
func (o Options) resolve() func(ctx context.Context, name string) ([]netip.Addr, error) {
	if o.ProxyResolves {
		return nil
	}
	return func(ctx context.Context, name string) ([]netip.Addr, error) { return o.Lookup(ctx, absolute(name)) }
}

// absolute returns a name to which no search domain is added.
func absolute(name string) string { return strings.TrimSuffix(name, ".") + "." }

// dialable refuses addresses that cannot be those of another host.
func dialable(address netip.Addr) error {
	if address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() ||
		address == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("address %s is loopback, link-local, multicast or broadcast; want that of a host", address)
	}
	return nil
}

// offLimits are the addresses that no tunnel may lead to.
type offLimits struct {
	// remote networks are reached through tunnels. No name of a peer may resolve to an address of own networks or nodes.
	remote, own []netip.Prefix
	nodes       []netip.Addr
	// private: addresses of private networks are refused as well.
	private bool
}

// privateNetworks are those that no host in the Internet has an address in.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fc00::/7"),
}

func offLimitsOf(s plan.Snapshot, private bool) (off offLimits) {
	off.private = private
	for _, peer := range s.Peers {
		off.remote = append(off.remote, peer.RemotePods, peer.RemoteExternal)
	}
	off.own = append(slices.Clone(s.Local.PodCIDRs), s.Local.External)
	for _, node := range s.Nodes {
		off.nodes = append(off.nodes, node.Address)
	}
	return off
}

func (o offLimits) isRemote(address netip.Addr) bool { return within(o.remote, address) }

// refuse returns why an address of a host is not dialled; nil if it may be.
func (o offLimits) refuse(address netip.Addr, host string) error {
	_, err := netip.ParseAddr(host)
	switch named := err != nil; {
	case o.isRemote(address):
		return fmt.Errorf("address %s is in a network that is itself reached through a tunnel", address)
	case o.private && within(privateNetworks, address):
		return fmt.Errorf("address %s is private, and gateway.config.privateEndpoints is false", address)
	case named && (within(o.own, address) || slices.Contains(o.nodes, address)):
		return fmt.Errorf("address %s belongs to this cluster, so the peer's gateway cannot be there", address)
	}
	return nil
}

func within(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}
