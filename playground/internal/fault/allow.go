// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Protocols that a Port can name. ICMP has no ports.
const (
	TCP  = "tcp"
	UDP  = "udp"
	ICMP = "icmp"
)

// Port is what a closed link lets through: a range of ports of a protocol, or ICMP. Its text forms are `tcp/443`,
// `udp/31000-31010` and `icmp`.
type Port struct {
	Protocol    string
	First, Last uint16 // 0 for ICMP
}

// ParsePort reads `tcp/443`, `udp/31000-31010` or `icmp`.
func ParsePort(text string) (Port, error) {
	protocol, ports, numbered := strings.Cut(strings.ToLower(strings.TrimSpace(text)), "/")
	if protocol == ICMP {
		if numbered {
			return Port{}, fmt.Errorf("port %q: ICMP has no ports; write icmp", text)
		}
		return Port{Protocol: ICMP}, nil
	}
	if protocol != TCP && protocol != UDP || !numbered {
		return Port{}, fmt.Errorf("port %q: no protocol and port; write for example tcp/443, udp/31000-31010 or icmp", text)
	}
	first, last, ranged := strings.Cut(ports, "-")
	if !ranged {
		last = first
	}
	from, errFrom := strconv.ParseUint(first, 10, 16)
	to, errTo := strconv.ParseUint(last, 10, 16)
	if errFrom != nil || errTo != nil || from == 0 || to < from {
		return Port{}, fmt.Errorf(
			"port %q: %q is neither a port from 1 to 65535 nor a range of them; write for example %s/443 or %[3]s/31000-31010", text, ports,
			protocol,
		)
	}
	return Port{Protocol: protocol, First: uint16(from), Last: uint16(to)}, nil
}

// ParsePorts reads a list of ports.
func ParsePorts(texts []string) ([]Port, error) {
	ports := make([]Port, len(texts))
	for i, text := range texts {
		var err error
		if ports[i], err = ParsePort(text); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// validate compares with the text form, since only a valid port is what its text reads as.
func (p Port) validate() error {
	if read, err := ParsePort(p.String()); err != nil || read != p {
		return fmt.Errorf("port %q: not a port of tcp or udp, a range of them, or icmp", p)
	}
	return nil
}

// String gives the form that ParsePort reads.
func (p Port) String() string {
	if p.First == 0 && p.Last == 0 {
		return p.Protocol
	}
	return p.Protocol + "/" + p.numbers()
}

func (p Port) numbers() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// MarshalText makes the text form the JSON and YAML form.
func (p Port) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePort.
func (p *Port) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePort(string(text))
	return err
}

// canonical returns the ports sorted and each once.
func canonical(ports []Port) []Port {
	sorted := slices.Clone(ports)
	slices.SortFunc(sorted, func(x, y Port) int {
		return cmp.Or(cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.First, y.First), cmp.Compare(x.Last, y.Last))
	})
	return slices.Compact(sorted)
}

func list(ports []Port) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// request matches packets that a client sends to the port.
func (p Port) request() string {
	if p.Protocol == ICMP {
		return "ip protocol icmp"
	}
	return fmt.Sprintf("%s dport %s", p.Protocol, p.numbers())
}

// reply matches packets that a server sends from the port, but none that opens a TCP connection or asks for an echo. It needs no
// connection tracking, whose entries could expire or start in the middle of a connection.
func (p Port) reply() string {
	switch p.Protocol {
	case ICMP:
		return "icmp type != echo-request"
	case TCP:
		return fmt.Sprintf("tcp sport %s tcp flags & (syn | ack) != syn", p.numbers())
	}
	return fmt.Sprintf("%s sport %s", p.Protocol, p.numbers())
}

// match is a condition on packets and the words for them.
type match struct{ condition, name string }

// allowed lists the packets that one direction of a closed link lets through.
func (d direction) allowed() []match {
	var out []match
	for _, p := range d.requests {
		out = append(out, match{p.request(), p.String()})
	}
	for _, p := range d.replies {
		out = append(out, match{p.reply(), "replies of " + p.String()})
	}
	return out
}

// close lets the allowed packets of one direction through and drops all others. These are the last rules of their direction,
// so an accepted packet skips no other fault.
func (d direction) close() []string {
	if len(d.requests)+len(d.replies) == 0 {
		return nil
	}
	var rules []string
	for _, m := range d.allowed() {
		rules = append(rules, fmt.Sprintf("%s %s accept", d.addresses(), m.condition))
	}
	return append(rules, d.cut("closed")...)
}

// witness counts the packets of one direction of a closed link that pass all faults. It repeats the conditions behind the
// rules of close, so the count of anything else is evidence that those rules drop what they should.
func (d direction) witness() []string {
	if len(d.requests)+len(d.replies) == 0 {
		return nil
	}
	var rules []string
	add := func(condition, what string) {
		rules = append(rules, fmt.Sprintf("%s counter accept comment %q", condition, comment(d.name+": "+passed+what)))
	}
	// With the egress interface a rule sees every packet once, behind the emulator.
	leaves := fmt.Sprintf("oifname %q %s", d.egress, d.addresses())
	for _, m := range d.allowed() {
		add(leaves+" "+m.condition, m.name)
	}
	add(leaves, "anything else")
	add(fmt.Sprintf("iifname %q oifname %q", d.source.Interface, d.destination.Interface), "anything else")
	return rules
}
