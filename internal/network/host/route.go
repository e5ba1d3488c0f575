// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

// route is a route and the attributes that a plan does not have.
type route struct {
	hoststate.Route
	tos int
	// odd describes attributes that no planned route has, so that such a route never equals a wanted one.
	odd string
}

// routeKey identifies a route: the kernel has at most one for each key, and replaces that.
type routeKey struct {
	table, metric, tos int
	to                 netip.Prefix
}

func (r route) key() routeKey { return routeKey{r.Table, r.Metric, r.tos, r.To} }

func (r route) String() string {
	var text strings.Builder
	if r.Blackhole {
		fmt.Fprintf(&text, "route blackhole %s", r.To)
	} else {
		fmt.Fprintf(&text, "route %s", r.To)
	}
	if r.Via.IsValid() {
		fmt.Fprintf(&text, " via %s onlink", r.Via)
	}
	if r.Link != "" {
		fmt.Fprintf(&text, " dev %s", r.Link)
	}
	if r.Source.IsValid() {
		fmt.Fprintf(&text, " src %s", r.Source)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&text, " mtu %d", r.MTU)
	}
	if r.Metric != 0 {
		fmt.Fprintf(&text, " metric %d", r.Metric)
	}
	fmt.Fprintf(&text, " table %d", r.Table)
	return text.String()
}

// blackholeSteps adds the blackhole routes before the links: meanwhile no packet for a peer may leave by another path.
func (h *Host) blackholeSteps(want hoststate.State) (steps, error) {
	var drops hoststate.State
	for _, one := range want.Routes {
		if one.Blackhole {
			drops.Routes = append(drops.Routes, one)
		}
	}
	if len(drops.Routes) == 0 {
		return steps{}, nil
	}
	todo, err := h.routeSteps(drops)
	return steps{make: todo.make}, err
}

// routeSteps returns the steps for routes. A route with our protocol number is ours, in any table.
func (h *Host) routeSteps(want hoststate.State) (steps, error) {
	var wanted []route
	for _, one := range want.Routes {
		one.To = one.To.Masked()
		wanted = append(wanted, route{Route: one})
		if one.Link != "" {
			if _, err := h.link(one.Link); err != nil { // so that its index has a name below
				return steps{}, err
			}
		}
	}
	ours, err := h.routes(true)
	if err != nil {
		return steps{}, err
	}
	d := kernel.Diff(wanted, ours, nil, route.key)
	if len(d.Add)+len(d.Replace) > 0 {
		// Only a new route can conflict with one of another program. Those may be very many, and mostly no route is new.
		foreign, err := h.routes(false)
		if err != nil {
			return steps{}, err
		}
		d = kernel.Diff(wanted, ours, foreign, route.key)
	}
	var todo steps
	var errs []error
	for _, one := range d.Taken {
		errs = append(
			errs,
			fmt.Errorf("add %s: another program has a route with the same destination, table and metric; see `ip route show table %d`", one, one.Table),
		)
	}
	for _, one := range d.Add {
		todo.make = append(todo.make, step{Change{verbAdd, one.String()}, func() error { return h.route(one, h.kernel.RouteAdd) }})
	}
	for _, one := range d.Replace {
		todo.make = append(todo.make, step{Change{verbReplace, one.String()}, func() error { return h.route(one, h.kernel.RouteReplace) }})
	}
	for _, one := range d.Remove {
		if slices.ContainsFunc(want.Keep, func(network netip.Prefix) bool { return isInside(one.To, network) }) {
			continue
		}
		todo.prune = append(todo.prune, step{Change{verbDelete, one.String()}, func() error {
			err := h.kernel.RouteDel(&netlink.Route{
				Dst: kernel.IPNet(one.To), Table: one.Table, Priority: one.Metric, Tos: one.tos, Protocol: hoststate.RouteProtocol, Scope: netlink.SCOPE_NOWHERE,
			})
			if errors.Is(err, unix.ESRCH) {
				return nil // the kernel deleted it with its link
			}
			return err
		}})
	}
	return todo, errors.Join(errs...)
}

// isInside reports whether a network is a part of another one.
func isInside(network, of netip.Prefix) bool {
	return network.Bits() > of.Bits() && of.Contains(network.Addr())
}

func (h *Host) route(r route, do func(*netlink.Route) error) error {
	one := &netlink.Route{Dst: kernel.IPNet(r.To), Table: r.Table, Protocol: hoststate.RouteProtocol, Priority: r.Metric, Type: unix.RTN_UNICAST}
	if r.Blackhole {
		one.Type = unix.RTN_BLACKHOLE
	} else {
		index, err := h.linkIndex(r.Link)
		if err != nil {
			return err
		}
		one.LinkIndex, one.Gw, one.Src, one.MTU = index, kernel.IPOf(r.Via), kernel.IPOf(r.Source), r.MTU
		if r.Via.IsValid() {
			one.Flags = int(netlink.FLAG_ONLINK)
		} else {
			one.Scope = netlink.SCOPE_LINK
		}
	}
	return do(one)
}

// routes lists the routes of all tables: ours, or those of others. The kernel filters ours; before Linux 4.20 it returns all, and the library
// filters.
func (h *Host) routes(ours bool) (all []route, err error) {
	from, filter, mask := h.kernel, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE
	if ours {
		from, filter.Protocol, mask = h.strict, hoststate.RouteProtocol, mask|netlink.RT_FILTER_PROTOCOL
	}
	for _, family := range kernel.Families {
		list, err := kernel.Dump(func() ([]netlink.Route, error) { return from.RouteListFiltered(family, filter, mask) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, one := range list {
			if (one.Protocol == hoststate.RouteProtocol) == ours {
				all = append(all, h.observed(one))
			}
		}
	}
	return all, nil
}

// NextHops returns the next hops of our routes on the host, by destination. Blackhole routes have none.
func (h *Host) NextHops() (map[netip.Prefix]netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := h.routes(true)
	if err != nil {
		return nil, err
	}
	nextHops := make(map[netip.Prefix]netip.Addr, len(all))
	for _, one := range all {
		if one.Via.IsValid() {
			nextHops[one.To] = one.Via
		}
	}
	return nextHops, nil
}

func (h *Host) observed(one netlink.Route) route {
	r := route{Route: hoststate.Route{Table: one.Table, To: kernel.PrefixOf(one.Dst), Metric: one.Priority}, tos: one.Tos}
	if one.Type == unix.RTN_BLACKHOLE {
		r.Blackhole = true
		return r
	}
	r.Via, r.Link, r.Source, r.MTU = kernel.AddrOf(one.Gw), h.linkName(one.LinkIndex), kernel.AddrOf(one.Src), one.MTU
	offLink := r.Via.IsValid() && one.Flags&int(netlink.FLAG_ONLINK) == 0
	if one.Type != unix.RTN_UNICAST || offLink || len(one.MultiPath) > 0 || one.Via != nil || one.Encap != nil || strings.HasPrefix(r.Link, "#") {
		r.odd = fmt.Sprint(one.Type, one.Flags, one.MultiPath, one.Via, one.Encap, r.Link)
	}
	return r
}
