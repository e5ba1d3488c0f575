// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

func addressText(a hoststate.Address) string {
	return fmt.Sprintf("address %s dev %s", a.Prefix, a.Link)
}

// addressSteps returns the steps for the addresses of our links. All addresses there are ours.
func (h *Host) addressSteps(want hoststate.State) (steps, error) {
	var ours []hoststate.Address
	var errs []error
	for _, link := range want.Links {
		have, err := h.addresses(link.Name)
		ours, errs = append(ours, have...), append(errs, err)
	}
	d := kernel.Diff(want.Addresses, ours, nil, func(a hoststate.Address) hoststate.Address { return a })
	var todo steps
	for _, one := range d.Add {
		todo.make = append(todo.make, step{Change{verbAdd, addressText(one)}, func() error {
			index, err := h.linkIndex(one.Link)
			if err != nil {
				return err
			}
			return h.kernel.AddrAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, &netlink.Addr{IPNet: kernel.IPNet(one.Prefix)})
		}})
	}
	for _, one := range d.Remove {
		todo.prune = append(todo.prune, step{Change{verbDelete, addressText(one)}, func() error {
			index, err := h.linkIndex(one.Link)
			if err != nil {
				return err
			}
			return h.kernel.AddrDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, &netlink.Addr{IPNet: kernel.IPNet(one.Prefix)})
		}})
	}
	return todo, errors.Join(errs...)
}

func (h *Host) addresses(name string) ([]hoststate.Address, error) {
	link, err := h.link(name)
	if err != nil || link == nil {
		return nil, err
	}
	var all []hoststate.Address
	for _, family := range kernel.Families {
		list, err := kernel.Dump(func() ([]netlink.Addr, error) { return h.kernel.AddrList(link, family) })
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", name, err)
		}
		for _, one := range list {
			all = append(all, hoststate.Address{Link: name, Prefix: kernel.PrefixOf(one.IPNet)})
		}
	}
	return all, nil
}
