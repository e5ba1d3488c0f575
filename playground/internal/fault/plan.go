// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Table is the nftables table (family inet) in the router's namespace that belongs to this package as a whole.
const Table = "playground-fault"

// Site is a cluster or the host as the router sees it.
type Site struct {
	Prefix    netip.Prefix // its node network, IPv4, e.g. 10.210.1.0/24
	Interface string       // the router's interface towards it, e.g. br1
	// Behind is the router's interface towards the inside of the NAT router that the site is behind, e.g. nat1-in; empty without
	// one. Between such a site and others but Host, packets take that way: there they still, and again, have the site's addresses.
	Behind string
}

// Topology maps the name of every site (each cluster, and Host) to where it is attached.
type Topology map[string]Site

// Plan is what the router must do. It is complete: it replaces whatever an earlier plan did.
type Plan struct {
	// NFT is a script for `nft -f -`, one transaction, that replaces or removes the table inet Table.
	NFT string
	// Emulation is for netem.Apply. Without pairs, the emulator need not run.
	Emulation Emulation
}

// Emulation is the whole configuration of the link emulator.
type Emulation struct {
	Pairs []Pair `json:"pairs"`
}

// Pair is one direction of a link with delay or limited bandwidth.
type Pair struct {
	Source      netip.Prefix `json:"source"`
	Destination netip.Prefix `json:"destination"`
	Ingress     string       `json:"ingress"` // the router's interface where these packets arrive
	Delay       Delay        `json:"delay,omitzero"`
	Bandwidth   Rate         `json:"bandwidth,omitzero"`
}

// String names the direction: `br1 10.210.1.0/24 -> 10.210.2.0/24`.
func (p Pair) String() string {
	return fmt.Sprintf("%s %s -> %s", p.Ingress, p.Source, p.Destination)
}

// Validate reports whether an emulator can use the configuration: values in range, IPv4 only, no packet that belongs to two pairs.
func (e Emulation) Validate() error {
	for i, p := range e.Pairs {
		if err := checkSite(Site{Prefix: p.Source, Interface: p.Ingress}); err != nil {
			return fmt.Errorf("pair %s: source: %w", p, err)
		}
		if err := checkSite(Site{Prefix: p.Destination, Interface: p.Ingress}); err != nil {
			return fmt.Errorf("pair %s: destination: %w", p, err)
		}
		if err := errors.Join(p.Delay.validate(), p.Bandwidth.validate()); err != nil {
			return fmt.Errorf("pair %s: %w", p, err)
		}
		for _, q := range e.Pairs[:i] {
			if p.Source.Overlaps(q.Source) && p.Destination.Overlaps(q.Destination) {
				return fmt.Errorf("pair %s overlaps pair %s", p, q)
			}
		}
	}
	return nil
}

// NewPlan turns the wanted faults into work for the router. It refuses sites that the topology does not know,
// links listed twice, values out of range, and topologies whose networks overlap.
func NewPlan(state State, topology Topology) (Plan, error) {
	if err := topology.validate(); err != nil {
		return Plan{}, err
	}
	var rules, witnesses []string
	pairs := []Pair{}
	seen := map[[2]string]bool{}
	for _, link := range state.Links {
		if err := topology.checkLink(link); err != nil {
			return Plan{}, err
		}
		ends := [2]string{min(link.A, link.B), max(link.A, link.B)}
		if seen[ends] {
			return Plan{}, fmt.Errorf("the link between %s and %s is listed twice", ends[0], ends[1])
		}
		seen[ends] = true
		for _, d := range topology.directions(link) {
			rules = append(rules, d.rules(link)...)
			witnesses = append(witnesses, d.witness()...)
			if link.Delay != (Delay{}) || link.Bandwidth != 0 {
				pairs = append(pairs, Pair{
					Source: d.source.Prefix, Destination: d.destination.Prefix, Ingress: d.ingress,
					Delay: link.Delay, Bandwidth: link.Bandwidth,
				})
			}
		}
	}
	return Plan{NFT: script(rules, witnesses), Emulation: Emulation{Pairs: pairs}}, nil
}

// direction is one direction of a link.
type direction struct {
	name                string
	source, destination Site
	// ingress and egress are the router's interfaces where these packets arrive and leave.
	ingress, egress string
	drop            bool
	// requests are the ports of the destination that the source may open, replies those of the source that the destination may
	// open. Without any, the link is not closed.
	requests, replies []Port
}

func (t Topology) directions(l Link) []direction {
	a, b := t[l.A], t[l.B]
	atA, atB := a.Interface, b.Interface
	if a.Behind != b.Behind && l.A != Host && l.B != Host {
		// At most one of them is behind a NAT router (checkLink): the other one is reached through it.
		atA, atB = cmp.Or(b.Behind, atA), cmp.Or(a.Behind, atB)
	}
	return []direction{
		{
			name: l.A + " -> " + l.B, source: a, destination: b, ingress: atA, egress: atB,
			drop: l.DropAB, requests: l.AllowAB, replies: l.AllowBA,
		},
		{
			name: l.B + " -> " + l.A, source: b, destination: a, ingress: atB, egress: atA,
			drop: l.DropBA, requests: l.AllowBA, replies: l.AllowAB,
		},
	}
}

func (d direction) addresses() string {
	return fmt.Sprintf("ip saddr %s ip daddr %s", d.source.Prefix, d.destination.Prefix)
}

// cut drops all packets of a direction.
// By address: also on both ways through the router, so that packets which the emulator holds when the link is cut are lost too.
// By interface: packets with other addresses (not masqueraded, or forwarded by the host) must not leak.
func (d direction) cut(why string) []string {
	verdict := fmt.Sprintf("counter drop comment %q", comment(d.name+": "+why))
	return []string{
		fmt.Sprintf("%s %s", d.addresses(), verdict),
		fmt.Sprintf("iifname %q oifname %q %s", d.source.Interface, d.destination.Interface, verdict),
	}
}

// rules of one direction. A packet that takes the way through the emulator is forwarded twice: from the ingress interface to the
// emulator and from the emulator to the egress interface.
func (d direction) rules(link Link) []string {
	var rules []string
	if d.drop {
		rules = append(rules, d.cut("partition")...)
	}
	if link.Loss != 0 {
		// With the egress interface the rule sees every packet once; behind the emulator, which made it wire size.
		chance := fmt.Sprintf(" numgen random mod %d < %d", FullLoss, link.Loss)
		if link.Loss == FullLoss {
			chance = "" // nft refuses a comparison that is always true
		}
		rules = append(rules, fmt.Sprintf("oifname %q %s%s counter drop comment %q",
			d.egress, d.addresses(), chance, comment(d.name+": loss "+link.Loss.String())))
	}
	return append(rules, d.close()...)
}

// comment cuts a text to what nft accepts.
func comment(text string) string {
	const longest = 128
	return text[:min(len(text), longest)]
}

// script replaces the table by a chain of the rules and, behind it, one of the witnesses.
func script(rules, witnesses []string) string {
	var b strings.Builder
	// To add the table first makes the deletion succeed on a router that has none.
	fmt.Fprintf(&b, "add table inet %s\ndelete table inet %s\n", Table, Table)
	if len(rules) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "table inet %s {\n", Table)
	chain(&b, "forward", "filter - 10", rules)
	if len(witnesses) > 0 {
		chain(&b, "witness", "filter + 10", witnesses)
	}
	b.WriteString("}\n")
	return b.String()
}

func chain(b *strings.Builder, name, priority string, rules []string) {
	fmt.Fprintf(b, "\tchain %s {\n\t\ttype filter hook forward priority %s; policy accept;\n", name, priority)
	for _, rule := range rules {
		fmt.Fprintf(b, "\t\t%s\n", rule)
	}
	b.WriteString("\t}\n")
}

func (t Topology) validate() error {
	names := slices.Sorted(maps.Keys(t))
	for i, name := range names {
		if name == "" || strings.ContainsFunc(name, unprintable) {
			return fmt.Errorf("site %q: not a name of printable ASCII characters without quotes", name)
		}
		if err := checkSite(t[name]); err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
		for _, other := range names[:i] {
			if t[name].Prefix.Overlaps(t[other].Prefix) {
				return fmt.Errorf("site %s: network %s overlaps network %s of %s", name, t[name].Prefix, t[other].Prefix, other)
			}
		}
	}
	return nil
}

// Check refuses names of unknown sites and a site named twice. It is for operations that make a link healthy: a plan shows no trace
// of those, so NewPlan cannot notice a misspelt name there.
func (t Topology) Check(sites ...string) error {
	for i, name := range sites {
		if _, known := t[name]; !known {
			return fmt.Errorf("unknown cluster %q; known are: %s", name, strings.Join(slices.Sorted(maps.Keys(t)), ", "))
		}
		if slices.Contains(sites[:i], name) {
			return fmt.Errorf("link of %s with itself: faults are between two clusters, or a cluster and %q", name, Host)
		}
	}
	return nil
}

func (t Topology) checkLink(l Link) error {
	if err := t.Check(l.A, l.B); err != nil {
		return err
	}
	if a, b := t[l.A].Behind, t[l.B].Behind; a != "" && b != "" && a != b {
		return fmt.Errorf("link %s <-> %s: they are behind different NAT routers, where no packet has the addresses of both; take one from behind "+
			"its router with: playground nat remove %[1]s (or clear the link's faults)", l.A, l.B)
	}
	problems := []error{l.Delay.validate(), l.Loss.validate(), l.Bandwidth.validate()}
	for _, p := range slices.Concat(l.AllowAB, l.AllowBA) {
		problems = append(problems, p.validate())
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("link %s <-> %s: %w", l.A, l.B, err)
	}
	return nil
}

func checkSite(s Site) error {
	const longestInterface = 15 // IFNAMSIZ without its end
	switch {
	case !s.Prefix.IsValid() || !s.Prefix.Addr().Is4():
		return fmt.Errorf("network %s: not an IPv4 prefix; faults work on IPv4 only", s.Prefix)
	case s.Prefix != s.Prefix.Masked():
		return fmt.Errorf("network %s: has host bits; write %s", s.Prefix, s.Prefix.Masked())
	case s.Prefix.Bits() == 0:
		return fmt.Errorf("network %s: covers everything", s.Prefix)
	case s.Interface == "" || len(s.Interface) > longestInterface || strings.ContainsFunc(s.Interface, unprintable):
		return fmt.Errorf("interface %q: not an interface name", s.Interface)
	case len(s.Behind) > longestInterface || strings.ContainsFunc(s.Behind, unprintable):
		return fmt.Errorf("interface %q: not an interface name", s.Behind)
	}
	return nil
}

// unprintable finds characters that could end a quoted string of an nft script.
func unprintable(r rune) bool {
	return r <= ' ' || r > '~' || r == '"' || r == '\\' || r == '*'
}
