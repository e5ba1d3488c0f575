// SPDX-License-Identifier: Apache-2.0

// Package nat decides what a NAT router needs: a router with one outside address, behind which one or more clusters are.
//
// It is pure: a State (which clusters are behind which router) and a topology go in, a Plan (links, routes, packet filters)
// comes out. Package network applies it. NAT happens in a namespace of its own, through which the router between the clusters
// sends what leaves:
//
//	br1 ──▶ router ──nat1-in──▶ lpg-nat1 ──nat1-out──▶ router ──▶ br2
//
// The router between the clusters thus sees the clusters' own addresses on nat1-in, where package fault finds them, and keeps no
// connection state. The golden test proves the text; the tests of package network prove that the kernel obeys it.
//
// What the NAT does: a flow that a cluster opens gets the outside address and a random port; each flow gets its own (a symmetric
// NAT). From outside, only packets of these flows get in, and those to a port that it forwards. Clusters behind one router reach each other, and the
// machine itself reaches all, without NAT.
package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// addresses are the outside addresses, which no other network of the playground uses: 203.0.113.1 and on (RFC 5737).
var addresses = netip.MustParsePrefix("203.0.113.0/24")

// maxRouters keeps the number of a router in one byte of the addresses of its links.
const maxRouters = 200

// Router is one NAT router.
type Router struct {
	// Number names the router's namespace and links; the first one is 1.
	Number   int        `json:"number"`
	Clusters []string   `json:"clusters"`
	Address  netip.Addr `json:"address"`
	Forwards []Forward  `json:"forwards,omitempty"`
}

// Forward has the router pass one port of its outside address on to a cluster, also for what comes from behind the router.
type Forward struct {
	Protocol string         `json:"protocol"` // udp or tcp
	Port     uint16         `json:"port"`
	Cluster  string         `json:"cluster"`
	To       netip.AddrPort `json:"to"` // in the node network of the cluster
}

// String is udp/5871 to 10.111.1.2:5871.
func (f Forward) String() string { return fmt.Sprintf("%s/%d to %s", f.Protocol, f.Port, f.To) }

// ParseForward reads a port, as udp/5871, and where it leads, as 10.111.1.2:5871.
func ParseForward(port, to string) (Forward, error) {
	f := Forward{}
	protocol, number, _ := strings.Cut(port, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || protocol != "udp" && protocol != "tcp" {
		return f, fmt.Errorf("%q is no port: want udp/PORT or tcp/PORT", port)
	}
	f.Protocol, f.Port = protocol, uint16(n)
	if f.To, err = netip.ParseAddrPort(to); err != nil || !f.To.Addr().Is4() || f.To.Port() == 0 {
		return f, fmt.Errorf("%q is no destination: want an IPv4 address and a port, as 10.111.1.2:5871", to)
	}
	return f, nil
}

// String describes the router for a person.
func (r Router) String() string {
	return fmt.Sprintf("%s behind %s", strings.Join(r.Clusters, ", "), r.Address)
}

// InsideLink is the interface of the router between the clusters towards this one's inside.
func (r Router) InsideLink() string { return fmt.Sprintf("nat%d-in", r.Number) }

func (r Router) outsideLink() string { return fmt.Sprintf("nat%d-out", r.Number) }

// State is the list of all NAT routers. Its operations return a new State and keep the old one as it is.
type State struct {
	Routers []Router `json:"routers"`
}

// Of returns the router that a cluster is behind.
func (s State) Of(cluster string) (Router, bool) {
	i := s.index(cluster)
	if i < 0 {
		return Router{}, false
	}
	return s.Routers[i], true
}

func (s State) index(cluster string) int {
	return slices.IndexFunc(s.Routers, func(r Router) bool { return slices.Contains(r.Clusters, cluster) })
}

// Has reports whether the state has exactly this router.
func (s State) Has(r Router) bool {
	return slices.ContainsFunc(s.Routers, func(o Router) bool {
		return o.Number == r.Number && o.Address == r.Address && slices.Equal(o.Clusters, r.Clusters) && slices.Equal(o.Forwards, r.Forwards)
	})
}

// Add puts clusters behind a new router. The error names a cluster that is behind one already, or is named twice.
func (s State) Add(clusters ...string) (State, Router, error) {
	for i, name := range clusters {
		if r, behind := s.Of(name); behind {
			return s, Router{}, fmt.Errorf("cluster %s is behind a NAT router already: %s; remove that first with: playground nat remove %[1]s", name, r)
		}
		if slices.Contains(clusters[:i], name) {
			return s, Router{}, fmt.Errorf("cluster %s is named twice", name)
		}
	}
	number := 1
	for slices.ContainsFunc(s.Routers, func(r Router) bool { return r.Number == number }) {
		number++
	}
	if number > maxRouters {
		return s, Router{}, fmt.Errorf("%d NAT routers: the limit is %d", number, maxRouters)
	}
	address := s.free()
	r := Router{Number: number, Clusters: slices.Sorted(slices.Values(clusters)), Address: address}
	return State{append(slices.Clone(s.Routers), r)}, r, nil
}

// Readdress gives the router of a cluster another outside address.
func (s State) Readdress(cluster string) State {
	i := s.index(cluster)
	if i < 0 {
		return s
	}
	out := State{slices.Clone(s.Routers)}
	out.Routers[i].Address = s.free()
	return out
}

// Forward adds a forward to the router of its cluster, in place of one of the same port.
func (s State) Forward(f Forward) State {
	i := s.index(f.Cluster)
	if i < 0 {
		return s
	}
	out := State{slices.Clone(s.Routers)}
	kept := slices.DeleteFunc(slices.Clone(out.Routers[i].Forwards), func(o Forward) bool { return o.Protocol == f.Protocol && o.Port == f.Port })
	out.Routers[i].Forwards = append(kept, f)
	return out
}

// Remove removes the router that a cluster is behind.
func (s State) Remove(cluster string) State {
	return State{slices.DeleteFunc(slices.Clone(s.Routers), func(r Router) bool { return slices.Contains(r.Clusters, cluster) })}
}

// Without takes one cluster from behind its router, and the router away if it was the last one.
func (s State) Without(cluster string) State {
	i := s.index(cluster)
	if i < 0 {
		return s
	}
	if len(s.Routers[i].Clusters) == 1 {
		return s.Remove(cluster)
	}
	out := State{slices.Clone(s.Routers)}
	out.Routers[i].Clusters = slices.DeleteFunc(slices.Clone(s.Routers[i].Clusters), func(c string) bool { return c == cluster })
	out.Routers[i].Forwards = slices.DeleteFunc(slices.Clone(s.Routers[i].Forwards), func(f Forward) bool { return f.Cluster == cluster })
	return out
}

// free returns the lowest address that no router has.
func (s State) free() netip.Addr {
	a := addresses.Addr().Next()
	for slices.ContainsFunc(s.Routers, func(r Router) bool { return r.Address == a }) {
		a = a.Next()
	}
	return a
}
