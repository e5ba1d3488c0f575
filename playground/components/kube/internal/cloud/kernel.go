// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

const (
	// routeProtocol identifies our routes in the kernel. No known daemon uses the number; Liqo, which is tested here, uses 98.
	routeProtocol netlink.RouteProtocol = 212
	// addressLabel identifies our addresses. The kernel requires the device's name as its prefix.
	addressLabel = "lo:pool"
)

// kernel accesses the network of one node through a netlink socket in its namespace.
type kernel struct {
	*netlink.Handle
	device   netlink.Link
	loopback netlink.Link
}

// openKernel opens the namespace at path. The caller closes it.
func openKernel(path, device string) (*kernel, error) {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	k := &kernel{Handle: handle}
	if k.device, err = handle.LinkByName(device); err != nil {
		handle.Close()
		return nil, fmt.Errorf("device %s in %s: %w", device, path, err)
	}
	if k.loopback, err = handle.LinkByName("lo"); err != nil {
		handle.Close()
		return nil, fmt.Errorf("device lo in %s: %w", path, err)
	}
	return k, nil
}

// routes returns our routes.
func (k *kernel) routes() ([]route, error) {
	filter := &netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN}
	list, err := k.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var ours []route
	for _, one := range list {
		via, _ := netip.AddrFromSlice(one.Gw.To4())
		if one.LinkIndex != k.device.Attrs().Index {
			via = netip.Addr{} // a route on another device never equals a wanted one, so that it is replaced
		}
		ours = append(ours, route{to: prefixOf(one.Dst), via: via})
	}
	return ours, nil
}

// syncRoutes makes our routes equal to want and returns the changes. A foreign route to the
// same destination stays and is an error.
func (k *kernel) syncRoutes(want []route) (changes []string, err error) {
	have, err := k.routes()
	if err != nil {
		return nil, err
	}
	add, remove := difference(want, have)
	var problems []error
	for _, one := range remove {
		err := k.RouteDel(&netlink.Route{Dst: networkOf(one.to), Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN})
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			problems = append(problems, fmt.Errorf("remove route to %s: %w", one.to, err))
			continue
		}
		changes = append(changes, fmt.Sprintf("- route %s via %s", one.to, one.via))
	}
	for _, one := range add {
		err := k.RouteAdd(&netlink.Route{
			LinkIndex: k.device.Attrs().Index, Dst: networkOf(one.to), Gw: one.via.AsSlice(),
			Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN,
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("add route to %s via %s: %w", one.to, one.via, err))
			continue
		}
		changes = append(changes, fmt.Sprintf("+ route %s via %s", one.to, one.via))
	}
	return changes, errors.Join(problems...)
}

// addresses returns our addresses.
func (k *kernel) addresses(p settings.Pool) ([]netip.Addr, error) {
	list, err := k.AddrList(k.loopback, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var ours []netip.Addr
	for _, one := range list {
		address := prefixOf(one.IPNet).Addr()
		if one.Label == addressLabel && p.Contains(address) {
			ours = append(ours, address)
		}
	}
	return ours, nil
}

// dropAddresses removes our addresses that are not wanted, and returns them.
func (k *kernel) dropAddresses(p settings.Pool, want []netip.Addr) (dropped []netip.Addr, err error) {
	have, err := k.addresses(p)
	if err != nil {
		return nil, err
	}
	_, remove := difference(want, have)
	for _, address := range remove {
		err := k.AddrDel(k.loopback, loopbackAddress(address))
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return dropped, fmt.Errorf("remove address %s: %w", address, err)
		}
		dropped = append(dropped, address)
	}
	return dropped, nil
}

// addAddresses adds the wanted addresses that are missing, and returns them.
func (k *kernel) addAddresses(p settings.Pool, want []netip.Addr) (added []netip.Addr, err error) {
	have, err := k.addresses(p)
	if err != nil {
		return nil, err
	}
	add, _ := difference(want, have)
	for _, address := range add {
		if err := k.AddrAdd(k.loopback, loopbackAddress(address)); err != nil {
			return added, fmt.Errorf("add address %s: %w", address, err)
		}
		added = append(added, address)
	}
	return added, nil
}

func loopbackAddress(address netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: networkOf(netip.PrefixFrom(address, 32)), Label: addressLabel}
}

func networkOf(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// prefixOf converts an IPv4 network; nil is the default route.
func prefixOf(network *net.IPNet) netip.Prefix {
	if network == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	address, _ := netip.AddrFromSlice(network.IP.To4())
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(address, bits)
}
