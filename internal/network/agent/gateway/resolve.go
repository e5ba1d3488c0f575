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
	"liqo.io/liqo/internal/network/plan/carriers"
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
		if err := carriers.Dialable(address.Unmap()); err != nil {
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
			if err := l.off.Refuse(address, endpoint.Host); err != nil {
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
		if refused := carriers.Dialable(address.Unmap()); refused != nil {
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
