// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Kind is one of the networks of a peer.
type Kind string

// The kinds of networks.
const (
	PodNetwork      Kind = "pod network"
	ExternalNetwork Kind = "external network"
)

// The reasons for which a network is refused.
var (
	// ErrInvalid: no host network can look like that.
	ErrInvalid = errors.New("not usable")
	// ErrExhausted: no network of that size is free.
	ErrExhausted = errors.New("no network is free")
)

// ReservedName is the name of networks that the administrator reserves for other uses. Gateways of peers may be in them.
const ReservedName = "reserved network"

// Use is a network that is not assigned to peers, and its owner.
type Use struct {
	Name    string
	Network netip.Prefix
}

// Assignment maps one network of a peer to the prefix under which we reach it.
type Assignment struct {
	// Owner identifies the peer by a name that the peer cannot choose.
	Owner string
	Kind  Kind
	// Want is the network of the peer, Have the assigned prefix.
	Want, Have netip.Prefix
}

// Pools are the networks that can be assigned to peers. The value is rebuilt from the recorded assignments whenever it is needed: first the
// fields, then Restore for each assignment, the most trusted first.
type Pools struct {
	// Networks to assign from, in the order in which they are tried.
	Networks []netip.Prefix
	// Used are our own networks and addresses, and the reserved ones, inside or outside of the pools.
	Used []Use
	// Avoid are addresses that peers named. A new assignment contains one only if nothing else is free. Existing assignments stay, so
	// that no peer can revoke one by naming an address in it.
	Avoid []Use

	assigned []Assignment
}

// DefaultNetworks are the private networks of RFC 1918, in the documented order.
func DefaultNetworks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("172.16.0.0/12")}
}

// never are networks whose addresses are never routed between hosts.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved, broadcast
}

// Check refuses prefixes that cannot be a network of pods or other hosts.
func Check(network netip.Prefix) error {
	switch {
	case !network.IsValid():
		return fmt.Errorf("%w: no network", ErrInvalid)
	case !network.Addr().Is4():
		return fmt.Errorf("%s is %w: only IPv4 so far", network, ErrInvalid)
	case network.Bits() == 0:
		return fmt.Errorf("%s is %w: it contains every address", network, ErrInvalid)
	case network != network.Masked():
		return fmt.Errorf("%s is %w: bits beyond the mask are set; the network is %s", network, ErrInvalid, network.Masked())
	}
	for _, one := range never {
		if one.Overlaps(network) {
			return fmt.Errorf("%s is %w: it overlaps %s, which is loopback, link-local, multicast or reserved", network, ErrInvalid, one)
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
				return fmt.Errorf("reserved network %s overlaps the %s %s of this cluster, which is always reserved; remove it from the list", network, use.Name, use.Network)
			}
		}
	}
	return nil
}

// Restore adds a recorded assignment. It returns false and drops the assignment if it is no longer possible: the networks differ in size, it
// lies in no pool, it overlaps something, or its owner already has one of this kind.
func (p *Pools) Restore(a Assignment) bool {
	if Check(a.Want) != nil || Check(a.Have) != nil || a.Want.Bits() != a.Have.Bits() || !p.free(a.Have) {
		return false
	}
	if slices.ContainsFunc(p.assigned, func(other Assignment) bool { return other.Owner == a.Owner && other.Kind == a.Kind }) {
		return false
	}
	p.assigned = append(p.assigned, a)
	return true
}

// Inside returns the networks and addresses that are ours or assigned to a peer. No host outside of the clusters has such an address.
func (p *Pools) Inside() (all []netip.Prefix) {
	for _, use := range p.Used {
		if use.Name != ReservedName {
			all = append(all, use.Network)
		}
	}
	for _, a := range p.assigned {
		all = append(all, a.Have)
	}
	return all
}

// Held returns the assignment of a network, if there is one.
func (p *Pools) Held(owner string, kind Kind, want netip.Prefix) (netip.Prefix, bool) {
	for _, a := range p.assigned {
		if a.Owner == owner && a.Kind == kind && a.Want == want {
			return a.Have, true
		}
	}
	return netip.Prefix{}, false
}

// Acquire returns the prefix under which we reach a network of a peer. It keeps an existing assignment. Otherwise it assigns the network itself if
// that lies in a pool and is free, else the first free one of its size. An assignment of the same owner and kind for another network is released.
func (p *Pools) Acquire(owner string, kind Kind, want netip.Prefix) (have netip.Prefix, remapped bool, err error) {
	if err := Check(want); err != nil {
		return netip.Prefix{}, false, err
	}
	if have, ok := p.Held(owner, kind, want); ok {
		return have, have != want, nil
	}
	if !slices.ContainsFunc(p.Networks, func(pool netip.Prefix) bool { return pool.Bits() <= want.Bits() }) {
		return netip.Prefix{}, false, fmt.Errorf("%s is %w: it is larger than every pool (%s)", want, ErrInvalid, join(p.Networks))
	}
	p.assigned = slices.DeleteFunc(p.assigned, func(a Assignment) bool { return a.Owner == owner && a.Kind == kind })
	have = want
	if !p.free(want) || avoided(p.Avoid, want).IsValid() {
		if have, err = p.first(want.Bits()); err != nil {
			return netip.Prefix{}, false, err
		}
	}
	p.assigned = append(p.assigned, Assignment{Owner: owner, Kind: kind, Want: want, Have: have})
	return have, have != want, nil
}

// Recall returns the first recorded network that can still be the cluster's own external network.
func (p *Pools) Recall(bits int, onRecord []netip.Prefix) (netip.Prefix, bool) {
	for _, network := range onRecord {
		if network.IsValid() && network.Bits() == bits && Check(network) == nil && p.free(network) {
			return network, true
		}
	}
	return netip.Prefix{}, false
}

// External returns the cluster's own external network: a recorded one if possible, otherwise the first free one. It is as large as the pod
// network, so that the addresses of nodes follow by arithmetic.
func (p *Pools) External(bits int, onRecord []netip.Prefix) (netip.Prefix, error) {
	if network, ok := p.Recall(bits, onRecord); ok {
		return network, nil
	}
	return p.first(bits)
}

// free reports whether a network lies in a pool and overlaps nothing.
func (p *Pools) free(network netip.Prefix) bool {
	inside := slices.ContainsFunc(p.Networks, func(pool netip.Prefix) bool { return pool.Bits() <= network.Bits() && pool.Overlaps(network) })
	_, taken := p.taken(network)
	return inside && !taken
}

// taken returns a used or assigned network that a network overlaps.
func (p *Pools) taken(network netip.Prefix) (netip.Prefix, bool) {
	for _, use := range p.Used {
		if use.Network.Overlaps(network) {
			return use.Network, true
		}
	}
	for _, a := range p.assigned {
		if a.Have.Overlaps(network) {
			return a.Have, true
		}
	}
	return netip.Prefix{}, false
}

// avoided returns an address to avoid that a network contains; invalid if there is none.
func avoided(avoid []Use, network netip.Prefix) netip.Prefix {
	for _, use := range avoid {
		if use.Network.Overlaps(network) {
			return use.Network
		}
	}
	return netip.Prefix{}
}

// first returns the first free network of a size. It prefers one without addresses to avoid, but ignores those if there is no such network: a peer
// that names addresses all over the pools must not exhaust them for others.
func (p *Pools) first(bits int) (netip.Prefix, error) {
	found, err := p.search(bits, p.Avoid)
	if err != nil && len(p.Avoid) > 0 {
		return p.search(bits, nil)
	}
	return found, err
}

// search skips each used network as a whole, so the number of steps is that of the used networks, not of the candidates.
func (p *Pools) search(bits int, avoid []Use) (netip.Prefix, error) {
	for _, pool := range p.Networks {
		if pool.Bits() > bits || Check(pool) != nil {
			continue
		}
		end := uint64(value(pool.Addr())) + 1<<(32-pool.Bits())
		step := uint64(1) << (32 - bits)
		for at := uint64(value(pool.Addr())); at < end; {
			network := netip.PrefixFrom(plus(netip.AddrFrom4([4]byte{}), uint32(at)), bits)
			met, taken := p.taken(network)
			if !taken {
				met = avoided(avoid, network)
			}
			if !met.IsValid() {
				if Check(network) == nil {
					return network, nil
				}
				at += step
				continue
			}
			after := uint64(value(met.Masked().Addr())) + 1<<(32-met.Bits())
			at = max(at+step, (after+step-1)/step*step)
		}
	}
	return netip.Prefix{}, fmt.Errorf("%w: none of size /%d in the pools (%s); add a pool with --additional-pools", ErrExhausted, bits, join(p.Networks))
}

// FreeMapping returns the first free address of the external network for a mapping.
func FreeMapping(external netip.Prefix, taken map[netip.Addr]bool) (netip.Addr, error) {
	for offset := range size(external) {
		address := plus(external.Masked().Addr(), offset)
		if IsMappable(external, address) && !taken[address] && offset != size(external)-1 {
			return address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: all %d addresses for mappings in the external network %s are taken; delete IPMappings that are no longer needed", ErrExhausted, len(taken), external)
}

func join(networks []netip.Prefix) string {
	var all []string
	for _, network := range networks {
		all = append(all, network.String())
	}
	return strings.Join(all, ", ")
}
