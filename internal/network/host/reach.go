// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/reach"
)

// Reaches returns the addresses of the host's links and the routes of its main table that others made. Resolvers are not the kernel's business.
func (h *Host) Reaches() (reach.Facts, error) {
	var facts reach.Facts
	links, err := kernel.Dump(h.kernel.LinkList)
	if err != nil {
		return facts, fmt.Errorf("list links: %w", err)
	}
	names := make(map[int]string, len(links))
	for _, link := range links {
		attrs := link.Attrs()
		names[attrs.Index] = attrs.Name
		switch {
		case attrs.Flags&net.FlagLoopback != 0 || attrs.Alias == linkAlias || attrs.Name == hoststate.VXLANLink || attrs.Name == hoststate.TunnelLink:
			facts.Skip = append(facts.Skip, attrs.Name)
		case link.Type() == "veth" || link.Type() == "netkit":
			facts.Pairs = append(facts.Pairs, attrs.Name)
		}
	}
	for _, family := range kernel.Families {
		addresses, err := kernel.Dump(func() ([]netlink.Addr, error) { return h.kernel.AddrList(nil, family) })
		if err != nil {
			return facts, fmt.Errorf("list addresses: %w", err)
		}
		for _, one := range addresses {
			if one.IPNet != nil {
				facts.Addresses = append(facts.Addresses, reach.Address{Link: names[one.LinkIndex], Prefix: kernel.PrefixOf(one.IPNet)})
			}
		}
		routes, err := kernel.Dump(func() ([]netlink.Route, error) {
			return h.strict.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return facts, fmt.Errorf("list the routes of the main table: %w", err)
		}
		for _, one := range routes {
			if one.Type == unix.RTN_UNICAST && one.Protocol != hoststate.RouteProtocol && one.Dst != nil {
				facts.Routes = append(facts.Routes, reachedBy(one, names))
			}
		}
	}
	return facts, nil
}

func reachedBy(one netlink.Route, names map[int]string) reach.Route {
	index, gateway := one.LinkIndex, one.Gw != nil || one.Via != nil
	if len(one.MultiPath) > 0 {
		index, gateway = one.MultiPath[0].LinkIndex, true
	}
	return reach.Route{To: kernel.PrefixOf(one.Dst), Link: names[index], Gateway: gateway, Connected: one.Protocol == unix.RTPROT_KERNEL}
}
