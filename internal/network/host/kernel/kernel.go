// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// difference is the difference between the wanted objects and the existing ones.
type difference[T any] struct {
	Add     []T
	Replace []T // wanted, and another object of ours has its key
	Remove  []T // ours and not wanted
	Taken   []T // wanted, and an object of another program has its key
}

// Diff compares. Objects with equal keys cannot or must not exist at the same time.
func Diff[K, T comparable](want, ours, foreign []T, key func(T) K) difference[T] {
	var d difference[T]
	mine, theirs := map[K]int{}, map[K]bool{}
	have, keep := map[T]bool{}, map[T]bool{}
	for _, one := range ours {
		mine[key(one)]++
		have[one] = true
	}
	for _, one := range foreign {
		theirs[key(one)] = true
	}
	replaced := map[K]bool{}
	for _, one := range want {
		k := key(one)
		switch {
		case keep[one]: // wanted twice
		case have[one]:
			keep[one] = true
		case theirs[k]:
			d.Taken = append(d.Taken, one)
		case mine[k] > 0:
			d.Replace = append(d.Replace, one)
			replaced[k] = true
		default:
			d.Add = append(d.Add, one)
		}
	}
	for _, one := range ours {
		switch k := key(one); {
		case keep[one]:
		case replaced[k]:
			replaced[k] = false // the first one with this key gets replaced
		default:
			d.Remove = append(d.Remove, one)
		}
	}
	return d
}

// Families are the managed address families.
var Families = []int{netlink.FAMILY_V4}

// Dump repeats a listing that the kernel interrupted because of a concurrent change.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for range 5 {
		if all, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return list()
}

// IPNet and the three functions below convert between the library's addresses and ours.
func IPNet(prefix netip.Prefix) *net.IPNet {
	if !prefix.IsValid() {
		return nil
	}
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

func PrefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(AddrOf(n.IP), bits)
}

func AddrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

func IPOf(addr netip.Addr) net.IP {
	if !addr.IsValid() {
		return nil
	}
	return addr.AsSlice()
}
