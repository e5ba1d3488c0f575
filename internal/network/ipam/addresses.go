// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// The external network is divided by arithmetic, so that no assignment has to be stored: offsets 1 to MaxLanes are probes, multiples of
// stride are nodes, the rest is for mappings.
const (
	// MaxLanes bounds the number of gateways of a cluster.
	MaxLanes = 8
	stride   = 16
)

// ProbeAddress returns where the gateway of a lane answers probes; invalid if the network is.
func ProbeAddress(external netip.Prefix, lane int) netip.Addr {
	if !external.Addr().Is4() {
		return netip.Addr{}
	}
	return plus(external.Masked().Addr(), uint32(lane)+1)
}

// Node is what the address of a node depends on.
type Node struct {
	Name     string
	PodCIDRs []netip.Prefix
}

// NodeAddresses returns the address of each node in the external network. A node with a pod network of its own within pods gets the first address
// of that network, swapped into the external network; these addresses differ, because the pod networks do not overlap. Other nodes get
// one by a hash of their name; if two collide, the first by name keeps it.
func NodeAddresses(external, pods netip.Prefix, nodes []Node) map[string]netip.Addr {
	all, taken := map[string]netip.Addr{}, map[netip.Addr]bool{}
	var hashed []string
	for _, node := range nodes {
		if address, ok := byNetwork(external, pods, node.PodCIDRs); ok && !taken[address] {
			all[node.Name], taken[address] = address, true
			continue
		}
		hashed = append(hashed, node.Name)
	}
	slices.SortFunc(hashed, strings.Compare)
	slots := size(external) / stride
	for _, name := range hashed {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(name)) // never fails
		for try := range slots {
			address := plus(external.Masked().Addr(), (hash.Sum32()+try)%slots*stride)
			if !taken[address] {
				all[name], taken[address] = address, true
				break
			}
		}
	}
	return all
}

func byNetwork(external, pods netip.Prefix, own []netip.Prefix) (netip.Addr, bool) {
	for _, network := range own {
		// A network smaller than the stride could have the address of a mapping.
		if pods.Overlaps(network) && network.Bits() >= pods.Bits() && size(network) >= stride {
			return Swap(network.Masked().Addr(), pods, external)
		}
	}
	return netip.Addr{}, false
}

// IsMappable reports whether an address of the external network can belong to neither a probe nor a node.
func IsMappable(external netip.Prefix, address netip.Addr) bool {
	if !external.Contains(address) {
		return false
	}
	offset := value(address) - value(external.Masked().Addr())
	return offset > stride && offset%stride != 0
}

// size returns the number of addresses of an IPv4 network, at most 2³¹.
func size(network netip.Prefix) uint32 {
	return 1 << min(31, 32-min(network.Bits(), 32))
}

func value(address netip.Addr) uint32 {
	four := address.As4()
	return uint32(four[0])<<24 | uint32(four[1])<<16 | uint32(four[2])<<8 | uint32(four[3])
}

func plus(address netip.Addr, offset uint32) netip.Addr {
	sum := value(address) + offset
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}
