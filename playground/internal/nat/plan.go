// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/topology"
)

// Emulator is the device of the link emulator, through which packets pass the router between the clusters twice.
const Emulator = "emu0"

// InsideName and OutsideName are the interfaces of a NAT router, in its own namespace.
const (
	InsideName  = "inside"
	OutsideName = "outside"
)

// Plan is what one NAT router needs.
type Plan struct {
	// Router is the path of the namespace of the router between the clusters, NetNS that of the NAT router.
	Router, NetNS   string
	Inside, Outside Link
	// Address is the outside address.
	Address netip.Addr
	// Members are the node networks behind the router, Direct those that members reach without it.
	Members, Direct []netip.Prefix
	// Table is the routing table of the router between the clusters for packets from members, Priority that of its rules.
	Table, Priority int
	// Filter is the nft script for the router between the clusters, Unfilter removes it, Translate is that for the NAT router.
	Filter, Unfilter, Translate string
}

// Link joins the NAT router to the router between the clusters.
type Link struct {
	Port    string // the interface of the router between the clusters
	Gateway netip.Prefix
	Address netip.Prefix // of the NAT router
}

// New plans a router. The clusters must be in the topology.
func New(r Router, t topology.Topology) Plan {
	p := Plan{
		Router:  path.Join(topology.NetNSDir, topology.Router),
		NetNS:   path.Join(topology.NetNSDir, fmt.Sprintf("%snat%d", topology.Prefix, r.Number)),
		Inside:  link(r.InsideLink(), byte(r.Number), 0),
		Outside: link(r.outsideLink(), byte(r.Number), 4),
		Address: r.Address, Table: 200 + r.Number, Priority: 11000 + r.Number, // behind the rules of the emulator
	}
	near := []string{p.Inside.Port, topology.RouterHostLink, Emulator}
	var bridges []string
	for _, c := range t.Clusters {
		if slices.Contains(r.Clusters, c.Name) {
			p.Members = append(p.Members, c.NodeCIDR)
			bridges = append(bridges, c.Bridge)
		}
	}
	p.Direct = append([]netip.Prefix{t.HostNet}, p.Members...)
	table := fmt.Sprintf("ip playground-nat%d", r.Number)
	p.Unfilter = fmt.Sprintf("add table %s\ndelete table %[1]s\n", table)
	p.Filter = p.Unfilter + fmt.Sprintf(`table %s {
	chain forward {
		type filter hook forward priority filter - 20; policy accept;
		ip daddr { %s } iifname != { %s } counter drop comment "from outside"
		iifname { %s } oifname != { %[3]s } counter drop comment "past the NAT router"
	}
}
`, table, join(p.Members), quoted(slices.Concat(bridges, near)), quoted(bridges))
	p.Translate = translate(p.Address, p.Members, r.Forwards)
	return p
}

// translate is the script of the NAT router. Its first line also flushes the rules of an earlier address. What members send to a forwarded port gets
// the outside address as well, so that the replies pass the router (a hairpin).
func translate(address netip.Addr, members []netip.Prefix, forwards []Forward) string {
	var incoming, hairpin strings.Builder
	if len(forwards) > 0 {
		incoming.WriteString("\tchain incoming {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n")
		for _, f := range forwards {
			fmt.Fprintf(&incoming, "\t\tip daddr %s %s dport %d dnat to %s\n", address, f.Protocol, f.Port, f.To)
		}
		incoming.WriteString("\t}\n")
		fmt.Fprintf(&hairpin, "\t\toifname %q ip saddr { %s } snat to %s fully-random\n", InsideName, join(members), address)
	}
	return fmt.Sprintf(`flush ruleset
table ip playground-nat {
%[4]s	chain input {
		type filter hook input priority filter; policy accept;
		iifname %[1]q counter drop
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		iifname %[2]q oifname %[1]q accept
		ct state established,related accept
		ct status dnat accept
		counter
	}
	chain outgoing {
		type nat hook postrouting priority srcnat; policy accept;
		oifname %[1]q snat to %[3]s fully-random
%[5]s	}
}
`, OutsideName, InsideName, address, incoming.String(), hairpin.String())
}

// link is a /30 of link-local addresses, which are never routed.
func link(port string, number, offset byte) Link {
	at := func(host byte) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, number, offset + host}), 30)
	}
	return Link{Port: port, Gateway: at(1), Address: at(2)}
}

func join(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
