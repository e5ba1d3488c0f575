// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/host/userspace"
	"liqo.io/liqo/internal/network/hoststate"
)

// ourLinks are the names of our links. A different link of such a name is replaced, and one that is not wanted is deleted.
var ourLinks = []string{hoststate.VXLANLink, hoststate.TunnelLink}

// linkAlias shows administrators the owner of the link.
const linkAlias = "liqo.io"

// noAddresses is the kernel's IN6_ADDR_GEN_MODE_NONE: a link that comes up gets no automatic address, and announces none.
const noAddresses = 1

// linkCache holds links by name and names by index.
type linkCache struct {
	byName  map[string]netlink.Link
	byIndex map[int]string
}

// link returns a link by name; nil if there is none.
func (h *Host) link(name string) (netlink.Link, error) {
	if link, ok := h.links.byName[name]; ok {
		return link, nil
	}
	link, err := h.kernel.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		link, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", name, err)
	}
	if h.links.byName == nil {
		h.links = linkCache{byName: map[string]netlink.Link{}, byIndex: map[int]string{}}
	}
	h.links.byName[name] = link
	if link != nil {
		h.links.byIndex[link.Attrs().Index] = name
	}
	return link, nil
}

// linkIndex returns the index of a link that must exist.
func (h *Host) linkIndex(name string) (int, error) {
	link, err := h.link(name)
	if err != nil {
		return 0, err
	}
	if link == nil {
		return 0, fmt.Errorf("link %s does not exist", name)
	}
	return link.Attrs().Index, nil
}

// linkName returns the name of a link that was looked up, else its number. Wanted objects refer to links by name, and all of those are looked up.
func (h *Host) linkName(index int) string {
	if name, ok := h.links.byIndex[index]; ok {
		return name
	}
	if index == 0 {
		return ""
	}
	return "#" + strconv.Itoa(index)
}

func linkText(l hoststate.Link) string {
	return fmt.Sprintf("link %s type %s mtu %d", l.Name, l.Kind, l.MTU)
}

// linkSteps returns the steps for links. The later kinds must be observed after these steps ran, because the kernel deletes everything on a link
// with it.
func (h *Host) linkSteps(want hoststate.State) (steps, error) {
	var todo steps
	var errs []error
	wanted := map[string]bool{}
	for _, one := range want.Links {
		wanted[one.Name] = true
		have, err := h.link(one.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		todo.make = append(todo.make, h.linkStep(one, have)...)
	}
	for _, name := range ourLinks {
		if wanted[name] {
			continue
		}
		have, err := h.link(name)
		if err != nil {
			errs = append(errs, err)
		}
		if have != nil {
			todo.prune = append(todo.prune, step{Change{verbDelete, "link " + name}, func() error { return h.deleteLink(name, have) }})
		}
	}
	return todo, errors.Join(errs...)
}

func (h *Host) linkStep(want hoststate.Link, have netlink.Link) []step {
	up := func() error {
		link, err := h.kernel.LinkByName(want.Name)
		if err != nil {
			return err
		}
		return h.kernel.LinkSetUp(link)
	}
	add := func() error {
		delete(h.links.byName, want.Name)
		if err := h.addLink(want); err != nil {
			return err
		}
		return up()
	}
	if have == nil {
		return []step{{Change{verbAdd, linkText(want)}, add}}
	}
	if !h.sameLink(want, have) {
		return []step{{Change{verbReplace, linkText(want)}, func() error {
			if err := h.deleteLink(want.Name, have); err != nil {
				return fmt.Errorf("delete the present link of this name: %w", err)
			}
			return add()
		}}}
	}
	if want.Kind == hoststate.WireGuardLink {
		h.implementation.Store(implementationOf(have))
	}
	var all []step
	if have.Attrs().MTU != want.MTU {
		all = append(all, step{Change{verbReplace, linkText(want)}, func() error { return h.kernel.LinkSetMTU(have, want.MTU) }})
	}
	if have.Attrs().Flags&net.FlagUp == 0 {
		all = append(all, step{Change{verbReplace, "link " + want.Name + " up"}, up})
	}
	return all
}

// sameLink reports whether a link equals the wanted one in everything that cannot be changed later. The kernel can change the hardware
// address, but silently deletes all permanent neighbours then.
func (h *Host) sameLink(want hoststate.Link, have netlink.Link) bool {
	switch want.Kind {
	case hoststate.VXLAN:
		v, ok := have.(*netlink.Vxlan)
		return ok && v.VxlanId == hoststate.VNI && v.Port == int(want.Port) && kernel.AddrOf(v.SrcAddr) == want.Local && !v.Learning && v.UDPCSum &&
			!v.FlowBased && v.Group == nil && v.VtepDevIndex == 0 && string(v.HardwareAddr) == string(want.MAC[:])
	case hoststate.WireGuardLink:
		switch have.(type) {
		case *netlink.Wireguard:
			return true
		case *netlink.Tuntap:
			return h.device != nil && h.device.Alive() && h.device.Index == have.Attrs().Index
		}
	}
	return false
}

func (h *Host) addLink(want hoststate.Link) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = want.Name, want.MTU
	switch want.Kind {
	case hoststate.VXLAN:
		attributes.HardwareAddr = want.MAC[:]
		if err := h.kernel.LinkAdd(&netlink.Vxlan{
			LinkAttrs: attributes, VxlanId: hoststate.VNI, SrcAddr: kernel.IPOf(want.Local), Port: int(want.Port), UDPCSum: true,
		}); err != nil {
			return err
		}
	case hoststate.WireGuardLink:
		if err := h.addTunnel(attributes); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown kind of link %q; want %s or %s", want.Kind, hoststate.VXLAN, hoststate.WireGuardLink)
	}
	link, err := h.kernel.LinkByName(want.Name)
	if err != nil {
		return err
	}
	if err := h.kernel.LinkSetIP6AddrGenMode(link, noAddresses); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		h.options.Log.Info("link may get an unused IPv6 address", "link", want.Name, "reason", err.Error()) // harmless, so the tunnel is still made
	}
	return h.kernel.LinkSetAlias(link, linkAlias)
}

// addTunnel creates a WireGuard device: a kernel device if the kernel supports that, else a userspace device.
func (h *Host) addTunnel(attributes netlink.LinkAttrs) error {
	h.closeDevice()
	clear(h.dialled)
	err := h.kernel.LinkAdd(&netlink.Wireguard{LinkAttrs: attributes})
	if err == nil {
		h.implementation.Store(kernelImplementation)
		return nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	device, err := userspace.Open(attributes.Name, attributes.MTU, h.bind(), h.options.Log)
	if err != nil {
		return err
	}
	h.device = device
	h.implementation.Store(userspaceImplementation)
	return nil
}

func (h *Host) deleteLink(name string, link netlink.Link) error {
	delete(h.links.byName, name)
	if name == hoststate.TunnelLink {
		h.implementation.Store("")
		if h.device != nil {
			own := h.device.Index == link.Attrs().Index
			h.closeDevice()
			if own {
				return nil // closing the device deleted the link
			}
		}
	}
	err := h.kernel.LinkDel(link)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// closeDevice closes the userspace device, if there is one.
func (h *Host) closeDevice() {
	if h.device != nil {
		h.device.Close()
		h.device = nil
	}
}
