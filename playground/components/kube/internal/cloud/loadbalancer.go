// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// balanced is a Service of type LoadBalancer that this pool serves.
type balanced struct {
	key     string // namespace/name
	created int64  // Unix seconds
	current netip.Addr
	wanted  string   // as the user wrote it; empty: any
	ipv4    bool     // false: a Service without IPv4, which the pool cannot serve
	nodes   []string // the nodes that may answer for it
}

// allocation holds the address of each Service, or the reason why it has none, by key.
type allocation struct {
	addresses map[string]netip.Addr
	problems  map[string]string
}

// allocate gives each service an address of the pool. It depends on its arguments only. A
// service keeps its address unless it requests another; requests for a certain address come
// before those for any; otherwise the older service comes first.
func allocate(p settings.Pool, services []balanced) allocation {
	result := allocation{addresses: map[string]netip.Addr{}, problems: map[string]string{}}
	owner := map[netip.Addr]string{}
	take := func(key string, address netip.Addr) {
		owner[address], result.addresses[key] = key, address
	}
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b balanced) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.key, b.key))
	})
	for _, s := range services {
		keeps := s.wanted == "" || s.wanted == s.current.String()
		if s.ipv4 && keeps && p.Contains(s.current) && owner[s.current] == "" {
			take(s.key, s.current)
		}
	}
	for _, s := range services {
		if _, done := result.addresses[s.key]; done || s.wanted == "" || !s.ipv4 {
			continue
		}
		address, err := netip.ParseAddr(s.wanted)
		switch {
		case err != nil:
			result.problems[s.key] = fmt.Sprintf("%q is not an address", s.wanted)
		case !p.Contains(address):
			result.problems[s.key] = fmt.Sprintf("address %s is not in the pool %s of this cluster", address, p)
		case owner[address] != "":
			result.problems[s.key] = fmt.Sprintf("address %s is in use by Service %s", address, owner[address])
		default:
			take(s.key, address)
		}
	}
	for _, s := range services {
		_, done := result.addresses[s.key]
		switch free, found := free(p, owner); {
		case done || result.problems[s.key] != "":
		case !s.ipv4:
			result.problems[s.key] = fmt.Sprintf("the Service has no IPv4 address family, and the pool %s is IPv4", p)
		case !found:
			result.problems[s.key] = fmt.Sprintf("all addresses of the pool %s are in use; delete a Service of type LoadBalancer", p)
		default:
			take(s.key, free)
		}
	}
	return result
}

// free returns the lowest address without owner.
func free(p settings.Pool, owner map[netip.Addr]string) (netip.Addr, bool) {
	for address := p.First; p.Contains(address); address = address.Next() {
		if owner[address] == "" {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// assign chooses the node that answers for each address. The choice depends on the address and
// its candidates only, so that the loss of a node moves only the addresses of that node, and
// no state is needed.
func assign(services []balanced, addresses map[string]netip.Addr) map[netip.Addr]string {
	holders := map[netip.Addr]string{}
	for _, s := range services {
		address, has := addresses[s.key]
		if !has || len(s.nodes) == 0 {
			continue
		}
		holders[address] = slices.MaxFunc(s.nodes, func(a, b string) int {
			return cmp.Or(cmp.Compare(score(address, a), score(address, b)), cmp.Compare(a, b))
		})
	}
	return holders
}

func score(address netip.Addr, node string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // a hash never fails
	_, _ = hash.Write(address.AsSlice())
	// The last byte of an address hardly reaches the high bits of FNV: mix them.
	sum := hash.Sum64()
	sum ^= sum >> 32
	sum *= 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

// carrier is a real node as a candidate for addresses.
type carrier struct {
	name     string
	ready    bool
	excluded bool // by the label of its owner
}

// candidates returns the nodes that may answer for a Service. If local is set, only nodes with
// one of the endpoints qualify. If no node is ready, the API may just be behind: readiness is
// then ignored, since an address without a node is of no use.
func candidates(nodes []carrier, local bool, endpoints map[string]bool) []string {
	var ready, others []string
	for _, node := range nodes {
		switch {
		case node.excluded || local && !endpoints[node.name]:
		case node.ready:
			ready = append(ready, node.name)
		default:
			others = append(others, node.name)
		}
	}
	if len(ready) == 0 {
		return others
	}
	return ready
}
