// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/nat"
)

// everywhere is the destination of a default route.
var everywhere = netip.MustParsePrefix("0.0.0.0/0")

// AddNAT makes a NAT router and sends through it what its members send to other clusters. It replaces a router of the same
// name, whose mappings are lost.
func AddNAT(p nat.Plan) error {
	if err := RemoveNAT(p); err != nil {
		return err
	}
	made, err := create(p.NetNS, routerSettings)
	if err != nil {
		return err
	}
	defer func() { _ = made.Close() }()
	router, outer, done, err := open(p.Router)
	if err != nil {
		return err
	}
	defer done()
	inner, err := netlink.NewHandleAt(made)
	if err != nil {
		return fmt.Errorf("open netlink in the NAT router: %w", err)
	}
	defer inner.Close()
	for name, link := range map[string]nat.Link{nat.InsideName: p.Inside, nat.OutsideName: p.Outside} {
		if err := connectNAT(router, outer, inner, name, link); err != nil {
			return err
		}
	}
	for _, member := range p.Members {
		if err := addRoute(inner, member, p.Inside.Gateway.Addr()); err != nil {
			return fmt.Errorf("route %s behind the NAT router: %w", member, err)
		}
	}
	if err := addRoute(inner, everywhere, p.Outside.Gateway.Addr()); err != nil {
		return fmt.Errorf("add the default route of the NAT router: %w", err)
	}
	if err := routeToNAT(outer, p); err != nil {
		return err
	}
	if err := Run(p.Router, p.Filter, "nft", "-f", "-"); err != nil {
		return err
	}
	return readdress(p, outer, inner)
}

func connectNAT(router netns.NsHandle, outer, inner *netlink.Handle, name string, link nat.Link) error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: link.Port, PeerNamespace: netlink.NsFd(router)}
	if err := inner.LinkAdd(veth); err != nil {
		return fmt.Errorf("link the NAT router's %s to the router: %w", name, err)
	}
	if err := configure(inner, name, link.Address); err != nil {
		return err
	}
	return configure(outer, link.Port, link.Gateway)
}

// routeToNAT sends what members send into the NAT router, but for destinations that they reach directly.
func routeToNAT(outer *netlink.Handle, p nat.Plan) error {
	for _, direct := range p.Direct {
		if err := outer.RouteReplace(&netlink.Route{Dst: ipNet(direct), Table: p.Table, Type: unix.RTN_THROW}); err != nil {
			return fmt.Errorf("route %s past the NAT router: %w", direct, err)
		}
	}
	if err := outer.RouteReplace(&netlink.Route{Dst: ipNet(everywhere), Gw: p.Inside.Address.Addr().AsSlice(), Table: p.Table}); err != nil {
		return fmt.Errorf("route to the NAT router: %w", err)
	}
	for _, member := range p.Members {
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table, rule.Src = netlink.FAMILY_V4, p.Priority, p.Table, ipNet(member)
		if err := outer.RuleAdd(rule); err != nil {
			return fmt.Errorf("send packets from %s to the NAT router: %w", member, err)
		}
	}
	return nil
}

// RebindNAT makes a NAT router forget every mapping, so that the next packet of each flow gets another port; and gives it the
// plan's outside address, if it has another one.
func RebindNAT(p nat.Plan) error {
	made, inner, closeInner, err := open(p.NetNS)
	if err != nil {
		return err
	}
	defer closeInner()
	_, outer, closeOuter, err := open(p.Router)
	if err != nil {
		return err
	}
	defer closeOuter()
	if err := readdress(p, outer, inner); err != nil {
		return err
	}
	tracked, err := netlink.NewHandleAt(made, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open netfilter in the NAT router: %w", err)
	}
	defer tracked.Close()
	if err := tracked.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("forget the mappings of the NAT router: %w", err)
	}
	return nil
}

// ForwardNAT gives a NAT router the plan's forwards. Its mappings stay.
func ForwardNAT(p nat.Plan) error { return Run(p.NetNS, p.Translate, "nft", "-f", "-") }

// readdress gives the NAT router the plan's outside address and removes others.
func readdress(p nat.Plan, outer, inner *netlink.Handle) error {
	link, err := inner.LinkByName(nat.OutsideName)
	if err != nil {
		return fmt.Errorf("find the outside of the NAT router: %w", err)
	}
	port, err := outer.LinkByName(p.Outside.Port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", p.Outside.Port, err)
	}
	if err := forgetAddresses(p, outer, inner, link, port); err != nil {
		return err
	}
	only := netip.PrefixFrom(p.Address, 32)
	if err := inner.AddrReplace(link, &netlink.Addr{IPNet: ipNet(only)}); err != nil {
		return fmt.Errorf("give %s to the NAT router: %w", p.Address, err)
	}
	if err := outer.RouteReplace(&netlink.Route{Dst: ipNet(only), Gw: p.Outside.Address.Addr().AsSlice(), LinkIndex: port.Attrs().Index}); err != nil {
		return fmt.Errorf("route %s to the NAT router: %w", p.Address, err)
	}
	return ForwardNAT(p)
}

func forgetAddresses(p nat.Plan, outer, inner *netlink.Handle, link, port netlink.Link) error {
	old, err := inner.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses of the NAT router: %w", err)
	}
	for _, a := range old {
		if a.Contains(p.Outside.Gateway.Addr().AsSlice()) || a.IP.Equal(p.Address.AsSlice()) {
			continue
		}
		if err := inner.AddrDel(link, &a); err != nil {
			return fmt.Errorf("take %s from the NAT router: %w", a.IP, err)
		}
		if err := outer.RouteDel(&netlink.Route{Dst: a.IPNet, LinkIndex: port.Attrs().Index}); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route to %s: %w", a.IP, err)
		}
	}
	return nil
}

// RemoveNAT undoes AddNAT; what is missing already is no error.
func RemoveNAT(p nat.Plan) error {
	if err := remove(p.NetNS); err != nil {
		return err
	}
	_, outer, done, err := open(p.Router)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	// A namespace's links vanish some time after it. Routes vanish with their links, those that lead nowhere do not.
	for _, name := range []string{p.Inside.Port, p.Outside.Port} {
		if err := deleteLink(outer, name); err != nil {
			return err
		}
	}
	if err := forgetTable(outer, p); err != nil {
		return err
	}
	return Run(p.Router, p.Unfilter, "nft", "-f", "-")
}

func forgetTable(outer *netlink.Handle, p nat.Plan) error {
	rules, err := outer.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, rule := range rules {
		if rule.Table == p.Table {
			if err := outer.RuleDel(&rule); err != nil {
				return fmt.Errorf("remove rule %d: %w", rule.Priority, err)
			}
		}
	}
	routes, err := outer.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: p.Table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, route := range routes {
		if err := outer.RouteDel(&route); err != nil {
			return fmt.Errorf("remove route %s: %w", route.Dst, err)
		}
	}
	return nil
}
