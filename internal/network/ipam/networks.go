// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
)

// DefaultNetworks are set apart for the networks of peers. No host has an address in 240.0.0.0/4, neither in a private network nor in the Internet, so
// nothing that this cluster reaches is behind one of them.
func DefaultNetworks() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("242.0.0.0/8")} }

// noHosts is what RFC 1112 reserves for future use, which includes the default network.
var noHosts = netip.MustParsePrefix("240.0.0.0/4")

// HasNoHosts reports whether no host has an address in a network, so that it can be led to a peer before it is known what nodes reach.
func HasNoHosts(network netip.Prefix) bool { return within(network, []netip.Prefix{noHosts}) }

// private are the networks of RFC 1918, from which earlier versions assigned.
var private = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("172.16.0.0/12")}

// Check refuses prefixes that cannot be a network of pods or other hosts.
func Check(network netip.Prefix) error {
	if !network.IsValid() {
		return fmt.Errorf("%w: no network", ErrInvalid)
	}
	family, err := FamilyOf(network)
	if err != nil {
		return err
	}
	switch {
	case network.Bits() == 0:
		return fmt.Errorf("%s is %w: it contains every address", network, ErrInvalid)
	case network != network.Masked():
		return fmt.Errorf("%s is %w: bits beyond the mask are set; the network is %s", network, ErrInvalid, network.Masked())
	}
	for _, one := range family.special() {
		if one.Overlaps(network) {
			return fmt.Errorf("%s is %w: it overlaps %s, which is loopback, link-local, multicast or broadcast", network, ErrInvalid, one)
		}
	}
	return nil
}

// CheckReserved refuses invalid pools and reserved networks, and reserved networks that overlap our own.
func CheckReserved(pools, reserved []netip.Prefix, own []Use) error {
	for _, network := range slices.Concat(pools, reserved) {
		if err := Check(network); err != nil {
			return err
		}
	}
	for _, network := range reserved {
		for _, use := range own {
			if use.Network.Overlaps(network) {
				return fmt.Errorf(
					"reserved network %s overlaps the %s %s of this cluster, which is always reserved; remove it from the list", network, use.Name,
					use.Network,
				)
			}
		}
	}
	return nil
}

// Without returns the pools without the assignments of an owner.
func (p *Pools) Without(owner string) *Pools {
	return p.without(owner, PodNetwork).without(owner, ExternalNetwork)
}
