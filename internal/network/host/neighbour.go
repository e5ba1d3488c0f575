// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

// neighbour maps an address to its hardware address or, if forwarding, a hardware address to the VXLAN endpoint behind which it is.
type neighbour struct {
	link       string
	forwarding bool
	address    netip.Addr
	mac        hoststate.MAC
	// learnt entries belong to the kernel and may change at any time.
	learnt bool
}

// neighbourKey identifies an entry: the kernel has at most one for each key.
type neighbourKey struct {
	link    string
	address netip.Addr
	mac     hoststate.MAC
}

func (n neighbour) key() neighbourKey {
	if n.forwarding {
		return neighbourKey{link: n.link, mac: n.mac}
	}
	return neighbourKey{link: n.link, address: n.address}
}

func (n neighbour) String() string {
	if n.forwarding {
		return fmt.Sprintf("forwarding %s dev %s dst %s", net.HardwareAddr(n.mac[:]), n.link, n.address)
	}
	return fmt.Sprintf("neighbour %s lladdr %s dev %s", n.address, net.HardwareAddr(n.mac[:]), n.link)
}

// neighbourSteps handles permanent neighbours and the forwarding entries of a VXLAN. It replaces learnt entries only where their key is wanted.
func (h *Host) neighbourSteps(want hoststate.State) (steps, error) {
	var wanted, ours []neighbour
	var errs []error
	for _, one := range want.Neighbours {
		wanted = append(wanted, neighbour{link: one.Link, address: one.Address, mac: one.MAC})
		if one.Destination.IsValid() {
			wanted = append(wanted, neighbour{link: one.Link, forwarding: true, address: one.Destination, mac: one.MAC})
		}
	}
	for _, link := range want.Links {
		have, err := h.neighbours(link)
		ours, errs = append(ours, have...), append(errs, err)
	}
	d := kernel.Diff(wanted, ours, nil, neighbour.key)
	var todo steps
	for _, one := range d.Add {
		todo.make = append(todo.make, step{Change{verbAdd, one.String()}, func() error { return h.neighbour(one, h.kernel.NeighSet) }})
	}
	for _, one := range d.Replace {
		todo.make = append(todo.make, step{Change{verbReplace, one.String()}, func() error { return h.neighbour(one, h.kernel.NeighSet) }})
	}
	for _, one := range d.Remove {
		if one.learnt {
			continue
		}
		todo.prune = append(todo.prune, step{Change{verbDelete, one.String()}, func() error {
			err := h.neighbour(one, h.kernel.NeighDel)
			if errors.Is(err, unix.ENOENT) {
				return nil // replaced together with another entry of the same hardware address
			}
			return err
		}})
	}
	return todo, errors.Join(errs...)
}

func (h *Host) neighbour(n neighbour, do func(*netlink.Neigh) error) error {
	index, err := h.linkIndex(n.link)
	if err != nil {
		return err
	}
	entry := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: kernel.IPOf(n.address), HardwareAddr: n.mac[:]}
	if n.forwarding {
		entry.Family, entry.Flags = unix.AF_BRIDGE, netlink.NTF_SELF
	}
	return do(entry)
}

func (h *Host) neighbours(of hoststate.Link) ([]neighbour, error) {
	link, err := h.link(of.Name)
	if err != nil || link == nil {
		return nil, err
	}
	kinds := kernel.Families
	if of.Kind == hoststate.VXLAN {
		kinds = append([]int{unix.AF_BRIDGE}, kernel.Families...)
	}
	var all []neighbour
	for _, family := range kinds {
		list, err := kernel.Dump(func() ([]netlink.Neigh, error) { return h.kernel.NeighList(link.Attrs().Index, family) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours of %s: %w", of.Name, err)
		}
		for _, one := range list {
			n := neighbour{
				link: of.Name, forwarding: family == unix.AF_BRIDGE, address: kernel.AddrOf(one.IP),
				learnt: one.State != netlink.NUD_PERMANENT,
			}
			copy(n.mac[:], one.HardwareAddr)
			all = append(all, n)
		}
	}
	return all, nil
}
