// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// Kind is one of the networks of a peer.
type Kind string

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
	// ErrTooLarge: the networks of one peer are together larger than a peer may have.
	ErrTooLarge = errors.New("too large")
)

// What one peer gets of the pools: at most as many addresses as a /12, and at most a quarter of the pools, so that it cannot exhaust them for others.
const (
	largest = 12
	share   = 4
)

// ReservedName is the name of networks that the administrator reserves for other uses. Gateways of peers may be in them.
const ReservedName = "reserved network"

// Word is what an administrator of this cluster wants for a network of a peer.
type Word int

const (
	// NoWord: what the peer claims decides nothing.
	NoWord Word = iota
	// Written: it is used as it is, where nothing of ours is there.
	Written
	// Forced: the same, although nodes reach it without the peer.
	Forced
)

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
	// Written: an administrator of this cluster wrote the network of the peer down, to be used as it is.
	Written bool
	// Agreed: the record is one that only this cluster writes. Earlier versions remapped into the private networks; such an assignment stays.
	Agreed bool
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
	// Reached are networks that nodes reach without a peer. No new assignment overlaps one, unless an administrator forces that. Existing assignments
	// stay: a link that appears on one node must not end a peering.
	Reached []Use
	// Stay are owners of which nodes reached a network once. A route that is away for a moment, as of a VPN after a reboot, must not move what runs onto it:
	// what they have is kept, whatever is free now, until an administrator forces something else.
	Stay []string
	// Here and There are the IDs of this cluster and of the peer whose networks are acquired; empty: the first free network is taken.
	Here, There string

	assigned []Assignment
}

// Restore adds a recorded assignment. It returns false and drops the assignment if it is no longer possible: the networks differ in size, it is
// not allowed here, it overlaps something, or its owner already has one of this kind.
func (p *Pools) Restore(a Assignment) bool {
	if Check(a.Want) != nil || Check(a.Have) != nil || a.Want.Bits() != a.Have.Bits() || !p.allowed(a) {
		return false
	}
	if _, taken := p.taken(a.Have); taken {
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

// InUse is Held for an assignment of which a record is that only this cluster writes.
func (p *Pools) InUse(owner string, kind Kind, want netip.Prefix) (netip.Prefix, bool) {
	for _, a := range p.assigned {
		if a.Owner == owner && a.Kind == kind && a.Want == want && a.Agreed {
			return a.Have, true
		}
	}
	return netip.Prefix{}, false
}

// Settled is Held, unless the network has been written down since it was remapped and can be used as it is.
//
// An answer that no tunnel has yet is in an object into which the peer writes as well. So it settles nothing about addresses outside of the pools:
// that is decided again from the word and from what nodes reach now.
func (p *Pools) Settled(owner string, kind Kind, want netip.Prefix, word Word) (netip.Prefix, bool) {
	have, ok := p.Held(owner, kind, want)
	if _, used := p.InUse(owner, kind, want); !used && !p.pooled(have) { // as if there is none
		return netip.Prefix{}, false
	}
	moves := word == Forced || word == Written && !slices.Contains(p.Stay, owner)
	if moves && have != want && p.without(owner, kind).keeps(want, word) {
		return netip.Prefix{}, false
	}
	return have, ok
}

// Acquire returns the prefix under which we reach a network of a peer. It keeps an existing assignment. Otherwise it assigns the network itself if
// that is free, and either written down by an administrator of this cluster or inside a pool; else the first free one of its size. What a peer claims
// decides nothing outside of the pools. An assignment of the same owner and kind for another network is released.
func (p *Pools) Acquire(owner string, kind Kind, want netip.Prefix, word Word) (have netip.Prefix, remapped bool, err error) {
	if err := Check(want); err != nil {
		return netip.Prefix{}, false, err
	}
	if have, ok := p.Settled(owner, kind, want, word); ok {
		return have, have != want, nil
	}
	rest := p.without(owner, kind)
	have = want
	if !rest.keeps(want, word) {
		if !slices.ContainsFunc(p.Networks, func(pool netip.Prefix) bool { return pool.Bits() <= want.Bits() }) {
			return netip.Prefix{}, false, fmt.Errorf("%s is %w: it is larger than every pool (%s)", want, ErrInvalid, join(p.Networks))
		}
		if have, err = rest.first(want.Bits(), rest.place()); err != nil {
			return netip.Prefix{}, false, err
		}
	}
	p.assigned = append(rest.assigned, Assignment{Owner: owner, Kind: kind, Want: want, Have: have, Written: word != NoWord, Agreed: true})
	return have, have != want, nil
}

// keeps reports whether a network is assigned as it is. Addresses that peers named do not count against the word of an administrator, or any peer could
// revoke it; what nodes reach does, unless he forces it.
func (p *Pools) keeps(network netip.Prefix, word Word) bool {
	switch {
	case !p.unused(network):
		return false
	case word == Forced:
		return true
	case overlapped(p.Reached, network).IsValid():
		return false
	default:
		return word == Written || p.pooled(network) && !overlapped(p.Avoid, network).IsValid()
	}
}

// Reaches returns who reaches a part of a network without the peer.
func (p *Pools) Reaches(network netip.Prefix) (all []Use) {
	for _, use := range p.Reached {
		if use.Network.Overlaps(network) {
			all = append(all, use)
		}
	}
	return all
}

// IsVacant reports whether nothing leads to a part of a network, which this cluster set apart for peers. A network that a peer chose may be used here
// then: no host that this cluster reaches is in it.
func (p *Pools) IsVacant(network netip.Prefix) bool {
	return p.pooled(network) && p.unused(network) && !overlapped(p.Reached, network).IsValid()
}

// CheckShare refuses networks of one peer that are together larger than a peer may have.
func (p *Pools) CheckShare(networks []netip.Prefix) error {
	sum, all := uint64(0), uint64(0)
	for _, network := range networks {
		sum += 1 << (32 - network.Bits())
	}
	for _, pool := range p.Networks {
		all += 1 << (32 - pool.Bits())
	}
	if most := min(1<<(32-largest), all/share); sum > most {
		return fmt.Errorf("%s: %w: %d addresses, and a peer gets at most %d, which is a /%d, or a quarter of what is set apart (%s) if that is less",
			join(networks), ErrTooLarge, sum, most, largest, join(p.Networks))
	}
	return nil
}

// without returns the pools without the assignment of one kind to an owner.
func (p *Pools) without(owner string, kind Kind) *Pools {
	rest := *p
	rest.assigned = slices.DeleteFunc(slices.Clone(p.assigned), func(a Assignment) bool { return a.Owner == owner && a.Kind == kind })
	return &rest
}

// Recall returns the first recorded network that can still be the cluster's own external network. Earlier versions chose a private one.
func (p *Pools) Recall(bits int, onRecord []netip.Prefix) (netip.Prefix, bool) {
	for _, network := range onRecord {
		if network.Bits() == bits && Check(network) == nil && (p.pooled(network) || isPrivate(network)) && p.unused(network) {
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
	return p.first(bits, 0)
}

// allowed reports whether an assignment was decided here: it lies in a pool; or an administrator wrote the network down; or an earlier version chose
// it, which was not the claim of the peer if the network is remapped.
func (p *Pools) allowed(a Assignment) bool {
	if p.pooled(a.Have) {
		return true
	}
	if a.Have == a.Want {
		return a.Written
	}
	return a.Agreed && isPrivate(a.Have)
}

func (p *Pools) pooled(network netip.Prefix) bool { return within(network, p.Networks) }

func isPrivate(network netip.Prefix) bool { return within(network, private) }

func within(network netip.Prefix, all []netip.Prefix) bool {
	return slices.ContainsFunc(all, func(one netip.Prefix) bool { return one.Bits() <= network.Bits() && one.Overlaps(network) })
}

// unused reports whether a network overlaps nothing that is used or assigned.
func (p *Pools) unused(network netip.Prefix) bool {
	_, taken := p.taken(network)
	return !taken
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

// overlapped returns a network in a list that a network overlaps; invalid if there is none.
func overlapped(uses []Use, network netip.Prefix) netip.Prefix {
	for _, use := range uses {
		if use.Network.Overlaps(network) {
			return use.Network
		}
	}
	return netip.Prefix{}
}

// first returns the first free network of a size. It prefers one without addresses to avoid, but ignores those if there is no such network: a peer
// that names addresses all over the pools must not exhaust them for others.
func (p *Pools) first(bits int, place uint32) (netip.Prefix, error) {
	found, err := p.search(bits, place, p.Avoid)
	if err != nil {
		return p.search(bits, place, nil)
	}
	return found, err
}

// place is where the search for a network of the peer begins, as a part of each pool in 1/2³². The two ends of a peering start in different halves,
// by the order of their IDs, so they do not choose the same network for each other; and at different places for different peers, so that others
// rarely have chosen it either. What a peer shows as the address of a pod here is then no address of another pod here, and can lead to that pod
// (plan/shown.go).
func (p *Pools) place() uint32 {
	if p.Here == "" || p.There == "" {
		return 0
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(p.Here + " " + p.There)) // never fails
	if p.Here < p.There {
		return hash.Sum32() >> 1
	}
	return hash.Sum32()>>1 | 1<<31
}

// search tries each pool from a place in it to its end, and from its beginning to that place.
func (p *Pools) search(bits int, place uint32, avoid []Use) (netip.Prefix, error) {
	for _, pool := range p.Networks {
		if pool.Bits() > bits || Check(pool) != nil {
			continue
		}
		start, step := uint64(value(pool.Addr())), uint64(1)<<(32-bits)
		from, end := start+uint64(place)>>pool.Bits()/step*step, start+1<<(32-pool.Bits())
		for _, part := range [][2]uint64{{from, end}, {start, from}} {
			if network, ok := p.between(part[0], part[1], bits, avoid); ok {
				return network, nil
			}
		}
	}
	unreached := ""
	if at := slices.IndexFunc(p.Reached, func(use Use) bool { return slices.ContainsFunc(p.Networks, use.Network.Overlaps) }); at >= 0 {
		unreached = fmt.Sprintf(" without what nodes reach already, such as %s (%s), see kubectl get nodereports -A", p.Reached[at].Network, p.Reached[at].Name)
	}
	return netip.Prefix{}, fmt.Errorf("%w: none of size /%d in the pools (%s)%s; add one with networkManager.config.additionalPools",
		ErrExhausted, bits, join(p.Networks), unreached)
}

// between skips each used network as a whole, so the number of steps is that of the used networks, not of the candidates.
func (p *Pools) between(at, end uint64, bits int, avoid []Use) (netip.Prefix, bool) {
	for step := uint64(1) << (32 - bits); at < end; {
		network := netip.PrefixFrom(plus(netip.AddrFrom4([4]byte{}), uint32(at)), bits)
		met, taken := p.taken(network)
		if !taken {
			met = overlapped(p.Reached, network)
		}
		if !met.IsValid() {
			met = overlapped(avoid, network)
		}
		if !met.IsValid() {
			if Check(network) == nil {
				return network, true
			}
			at += step
			continue
		}
		after := uint64(value(met.Masked().Addr())) + 1<<(32-met.Bits())
		at = max(at+step, (after+step-1)/step*step)
	}
	return netip.Prefix{}, false
}

// FreeMapping returns the first free address of the external network for a mapping.
func FreeMapping(external netip.Prefix, taken map[netip.Addr]bool) (netip.Addr, error) {
	for offset := range size(external) {
		address := plus(external.Masked().Addr(), offset)
		if IsMappable(external, address) && !taken[address] && offset != size(external)-1 {
			return address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: all %d addresses for mappings in the external network %s are taken; delete IPMappings that are no longer needed",
		ErrExhausted, len(taken), external)
}

func join(networks []netip.Prefix) string {
	var all []string
	for _, network := range networks {
		all = append(all, network.String())
	}
	return strings.Join(all, ", ")
}
