// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// String prints the state, one item a line, in the order in which a packet meets it: the links it may come in by, the chains before
// routing, the routing, the chains after it, and the other end of the link.
func (h State) String() string {
	var text lines
	for _, link := range h.Links {
		text.add(link.text())
	}
	for _, address := range h.Addresses {
		text.add(fmt.Sprintf("address %s on %s", address.Prefix, address.Link))
	}
	text.chains(h.Chains, Prerouting)
	for _, rule := range h.Rules {
		text.add(rule.text())
	}
	for _, route := range h.Routes {
		text.add(route.text())
	}
	for _, network := range h.Keep {
		text.add(fmt.Sprintf("keep routes inside %s", network))
	}
	for _, hook := range []Hook{Input, Forward, Output, Postrouting} {
		text.chains(h.Chains, hook)
	}
	for _, neighbour := range h.Neighbours {
		text.add(fmt.Sprintf("neighbour %s on %s is %s at %s", neighbour.Address, neighbour.Link, neighbour.MAC, neighbour.Destination))
	}
	if h.WireGuard != nil {
		text.wireGuard(*h.WireGuard)
	}
	return text.String()
}

type lines struct{ strings.Builder }

func (l *lines) add(line string) { l.WriteString(line + "\n") }

func (l *lines) chains(chains []Chain, hook Hook) {
	for _, chain := range chains {
		if chain.Hook != hook {
			continue
		}
		kind := "filter"
		if chain.NAT {
			kind = "nat"
		}
		l.add(fmt.Sprintf("chain %s %s %d %s", chain.Hook, kind, chain.Priority, chain.Name))
		for _, rule := range chain.Rules {
			l.add("  " + rule.text())
		}
	}
}

func (l *lines) wireGuard(tunnel WireGuard) {
	l.add(fmt.Sprintf("wireguard port %d key %s", tunnel.ListenPort, tunnel.PublicKey))
	for _, peer := range tunnel.Peers {
		endpoint := "dials"
		if peer.Endpoint.IsValid() {
			endpoint = "at " + peer.Endpoint.String()
		}
		allowed := "nothing"
		if len(peer.AllowedIPs) > 0 {
			allowed = join(peer.AllowedIPs)
		}
		l.add(fmt.Sprintf("  peer %s %s dial %d keepalive %s allowed %s", peer.PublicKey, endpoint, peer.Dial, peer.Keepalive, allowed))
	}
}

// String returns the form that ip link prints.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

func (l Link) text() string {
	text := fmt.Sprintf("link %s %s mtu %d", l.Name, l.Kind, l.MTU)
	if l.Kind == VXLAN {
		text += fmt.Sprintf(" %s from %s port %d", l.MAC, l.Local, l.Port)
	}
	return text
}

func (r Rule) text() string {
	words := []string{fmt.Sprintf("rule %d", r.Priority)}
	words = appendIf(words, r.InLink != "", "in", r.InLink)
	words = appendIf(words, r.Protocol != "", r.Protocol)
	words = appendIf(words, r.To.IsValid(), "to", r.To.String())
	return strings.Join(append(words, "table", tableName(r.Table)), " ")
}

func (r Route) text() string {
	words := []string{"route", tableName(r.Table), r.To.String()}
	words = appendIf(words, r.Blackhole, "blackhole")
	words = appendIf(words, r.Via.IsValid(), "via", r.Via.String())
	words = appendIf(words, r.Link != "", "on", r.Link)
	words = appendIf(words, r.Source.IsValid(), "source", r.Source.String())
	words = appendIf(words, r.MTU != 0, "mtu", fmt.Sprint(r.MTU))
	words = appendIf(words, r.Metric != 0, "metric", fmt.Sprint(r.Metric))
	return strings.Join(words, " ")
}

func tableName(table int) string {
	if table == MainTable {
		return "main"
	}
	return fmt.Sprint(table)
}

func (r PacketRule) text() string {
	var words []string
	words = appendIf(words, r.In != "", "in", r.In)
	words = appendIf(words, r.Out != "", "out", r.Out)
	words = appendIf(words, r.InNot != "", "not in", r.InNot)
	words = appendIf(words, r.OutNot != "", "not out", r.OutNot)
	words = appendIf(words, r.From.IsValid(), "from", r.From.String())
	words = appendIf(words, r.FromNot != nil, "from none of", "["+join(r.FromNot)+"]")
	words = appendIf(words, r.To.IsValid(), "to", r.To.String())
	words = appendIf(words, r.ToNot != nil, "to none of", "["+join(r.ToNot)+"]")
	words = appendIf(words, r.Protocol != "", r.Protocol)
	words = appendIf(words, r.Port != 0, "port", fmt.Sprint(r.Port))
	words = appendIf(words, r.Inner.IsValid(), "about", r.Inner.String())
	words = appendIf(words, r.New, "new")
	words = appendIf(words, r.Mapped, "mapped")
	words = appendIf(words, r.Shown, "shown")
	words = appendIf(words, len(words) == 0, "all")
	words = append(words, ":", string(r.Verb))
	words = appendIf(words, r.Network.IsValid(), "to", r.Network.String())
	words = appendIf(words, r.Address.IsValid(), "to", r.Address.String())
	words = appendIf(words, r.MSS != 0, fmt.Sprint(r.MSS))
	return strings.Replace(strings.Join(words, " "), " : ", ": ", 1)
}

func appendIf(words []string, is bool, more ...string) []string {
	if is {
		return append(words, more...)
	}
	return words
}

func join[T netip.Addr | netip.Prefix](all []T) string {
	words := make([]string, 0, len(all))
	for _, one := range all {
		words = append(words, fmt.Sprint(one))
	}
	return strings.Join(words, " ")
}
