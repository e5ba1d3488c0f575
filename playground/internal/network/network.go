// SPDX-License-Identifier: Apache-2.0

// Package network makes the network of a playground: namespaces, the router between clusters,
// one bridge for each cluster, and one veth pair for each node.
//
// It applies what package topology decided and decides nothing. All of it lives in named
// namespaces but one link and one route of the host, so Teardown needs no record of what
// was made. Routes between the nodes of a cluster follow from what Kubernetes assigns and
// are not made here; faults are package fault's. Its proof is network_test.go (root only).
package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/topology"
)

// routerSettings let the router forward all packets. Reverse path filters are off, since delayed
// packets return from a device that such a filter would not expect.
var routerSettings = map[string]string{
	"net/ipv4/ip_forward":              "1",
	"net/ipv4/conf/all/rp_filter":      "0",
	"net/ipv4/conf/default/rp_filter":  "0",
	"net/ipv4/conf/all/send_redirects": "0",
}

var nodeSettings = map[string]string{
	"net/ipv4/ip_forward":             "1",
	"net/ipv4/conf/all/rp_filter":     "0",
	"net/ipv4/conf/default/rp_filter": "0",
}

// firstOwnRule is the lowest priority of the kernel's own rules: 32766 is the main table, 32767 the default one. Rule 0 is also its own.
const firstOwnRule = 32766

// SetupHost makes the router and links the host to it.
func SetupHost(t topology.Topology) error {
	if err := prepareDir(); err != nil {
		return err
	}
	router, err := create(routerPath(), routerSettings)
	if err != nil {
		return err
	}
	defer func() { _ = router.Close() }()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: topology.HostLink},
		PeerName:      topology.RouterHostLink,
		PeerNamespace: netlink.NsFd(router),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link the host to the router: %w", err)
	}
	host, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	if err := configure(host, topology.HostLink, netip.PrefixFrom(t.HostAddress, t.HostNet.Bits())); err != nil {
		return err
	}
	inside, err := netlink.NewHandleAt(router)
	if err != nil {
		return fmt.Errorf("open netlink in the router: %w", err)
	}
	defer inside.Close()
	if err := configure(inside, topology.RouterHostLink, netip.PrefixFrom(t.RouterAddress, t.HostNet.Bits())); err != nil {
		return err
	}
	if err := addRoute(host, t.Scenario.Network.Masked(), t.RouterAddress); err != nil {
		return fmt.Errorf("route %s to the router: %w", t.Scenario.Network, err)
	}
	return nil
}

// AddCluster makes a cluster's bridge in the router and a namespace for each of its nodes.
func AddCluster(c topology.Cluster) error {
	router, inside, done, err := openRouter()
	if err != nil {
		return err
	}
	defer done()
	if err := inside.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: c.Bridge}}); err != nil {
		return fmt.Errorf("create bridge %s of cluster %s: %w", c.Bridge, c.Name, err)
	}
	if err := configure(inside, c.Bridge, netip.PrefixFrom(c.Gateway, c.NodeCIDR.Bits())); err != nil {
		return err
	}
	for _, e := range c.Endpoints() {
		if err := addEndpoint(router, inside, c, e); err != nil {
			return fmt.Errorf("connect %s: %w", e.Name, err)
		}
		if err := Run(e.NetNS, masquerade(c.PodCIDR), "nft", "-f", "-"); err != nil {
			return err
		}
	}
	return nil
}

func addEndpoint(router netns.NsHandle, inside *netlink.Handle, c topology.Cluster, e topology.Endpoint) error {
	ns, err := create(e.NetNS, nodeSettings)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	node, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer node.Close()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: topology.NodeLink},
		PeerName:      e.Port,
		PeerNamespace: netlink.NsFd(router),
	}
	if err := node.LinkAdd(veth); err != nil {
		return fmt.Errorf("create link: %w", err)
	}
	port, err := inside.LinkByName(e.Port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", e.Port, err)
	}
	bridge, err := inside.LinkByName(c.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", c.Bridge, err)
	}
	if err := inside.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("put port %s on bridge %s: %w", e.Port, c.Bridge, err)
	}
	if err := inside.LinkSetUp(port); err != nil {
		return fmt.Errorf("set port %s up: %w", e.Port, err)
	}
	if err := configure(node, topology.NodeLink, netip.PrefixFrom(e.Address, c.NodeCIDR.Bits())); err != nil {
		return err
	}
	if err := addRoute(node, netip.MustParsePrefix("0.0.0.0/0"), c.Gateway); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

// masquerade hides pods behind their node for everything outside the pod network, as
// kindnet does: nothing outside the cluster has a route to its pods.
func masquerade(pods netip.Prefix) string {
	return fmt.Sprintf(`table ip playground {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[1]s ip daddr != %[1]s masquerade
	}
}
`, pods)
}

// RemoveCluster undoes AddCluster; what is missing already is no error.
func RemoveCluster(c topology.Cluster) error {
	for _, e := range c.Endpoints() {
		if err := remove(e.NetNS); err != nil {
			return err
		}
	}
	_, inside, done, err := openRouter()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	// A namespace's links vanish some time after it, so its ports are removed here by name.
	names := []string{c.Bridge}
	for _, e := range c.Endpoints() {
		names = append(names, e.Port)
	}
	for _, name := range names {
		if err := deleteLink(inside, name); err != nil {
			return err
		}
	}
	return nil
}

// SetPort sets a node's port on the router up or down.
func SetPort(e topology.Endpoint, up bool) error {
	_, inside, done, err := openRouter()
	if err != nil {
		return err
	}
	defer done()
	port, err := inside.LinkByName(e.Port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", e.Port, err)
	}
	set := inside.LinkSetDown
	if up {
		set = inside.LinkSetUp
	}
	if err := set(port); err != nil {
		return fmt.Errorf("switch port %s: %w", e.Port, err)
	}
	return nil
}

// Forget removes what a kernel loses with its power: all links but the cable, all rules, routes and tables of the packet
// filter but those a node is made with. The kernel removes links of dead pods with a delay, and until then a new
// pod of the same address gets no route.
func Forget(c topology.Cluster, e topology.Endpoint) error {
	ns, err := netns.GetFromPath(e.NetNS)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", e.Name, err)
	}
	defer func() { _ = ns.Close() }()
	node, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", e.Name, err)
	}
	defer node.Close()
	if err := forgetLinks(node); err != nil {
		return fmt.Errorf("network of %s: %w", e.Name, err)
	}
	if err := forgetRouting(node); err != nil {
		return fmt.Errorf("network of %s: %w", e.Name, err)
	}
	return Run(e.NetNS, "flush ruleset\n"+masquerade(c.PodCIDR), "nft", "-f", "-")
}

func forgetLinks(node *netlink.Handle) error {
	links, err := node.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		// A link may go with another one: the two ends of a pair, and what a pod's namespace takes along.
		if name := link.Attrs().Name; name != topology.NodeLink && name != "lo" {
			if err := node.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("remove link %s: %w", name, err)
			}
		}
	}
	return nil
}

func forgetRouting(node *netlink.Handle) error {
	rules, err := node.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, rule := range rules {
		if rule.Priority > 0 && rule.Priority < firstOwnRule {
			if err := node.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove rule %d: %w", rule.Priority, err)
			}
		}
	}
	routes, err := node.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, route := range routes {
		wired := route.Dst == nil || route.Dst.IP.IsUnspecified()
		if route.Protocol == unix.RTPROT_KERNEL || route.Table == unix.RT_TABLE_MAIN && wired {
			continue
		}
		if err := node.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", route.Dst, err)
		}
	}
	return nil
}

// Teardown removes every namespace and link with the playground's prefix, whichever process made
// it and whether or not its owner still exists.
func Teardown() error {
	names, err := Namespaces()
	if err != nil {
		return err
	}
	host, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	if err := deleteLink(host, topology.HostLink); err != nil {
		return err
	}
	for _, name := range names {
		if err := remove(path.Join(topology.NetNSDir, name)); err != nil {
			return err
		}
	}
	return removeDir()
}

// Namespaces lists the names of the playground's network namespaces.
func Namespaces() ([]string, error) {
	found, err := filepath.Glob(path.Join(topology.NetNSDir, topology.Prefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	for i, f := range found {
		found[i] = filepath.Base(f)
	}
	return found, nil
}

// openRouter opens the router between the clusters.
func openRouter() (router netns.NsHandle, inside *netlink.Handle, done func(), err error) {
	return open(routerPath())
}

// open returns a named namespace and a netlink handle in it; done closes both.
func open(at string) (ns netns.NsHandle, inside *netlink.Handle, done func(), err error) {
	ns, err = netns.GetFromPath(at)
	if err != nil {
		return ns, nil, nil, fmt.Errorf("open network namespace %s: %w", path.Base(at), err)
	}
	inside, err = netlink.NewHandleAt(ns)
	if err != nil {
		_ = ns.Close()
		return ns, nil, nil, fmt.Errorf("open netlink in %s: %w", path.Base(at), err)
	}
	return ns, inside, func() { inside.Close(); _ = ns.Close() }, nil
}

func routerPath() string { return path.Join(topology.NetNSDir, topology.Router) }

func configure(h *netlink.Handle, name string, address netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.AddrReplace(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("give %s to link %s: %w", address, name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

func addRoute(h *netlink.Handle, to netip.Prefix, via netip.Addr) error {
	return h.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func deleteLink(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}
