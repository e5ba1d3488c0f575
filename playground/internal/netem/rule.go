// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"liqo.io/liqo/playground/internal/fault"
)

// selector is what a policy rule matches: the packets of one pair.
type selector struct {
	source, destination netip.Prefix
	ingress             string
}

func selectorOf(p fault.Pair) selector {
	return selector{source: p.Source, destination: p.Destination, ingress: p.Ingress}
}

func (s selector) String() string {
	return fmt.Sprintf("iif %s from %s to %s", s.ingress, s.source, s.destination)
}

// diffRules returns the rules to add and to remove so that exactly one rule of our priority range selects each pair. It ignores rules
// outside that range, and removes foreign or damaged ones inside.
func diffRules(existing []netlink.Rule, pairs []fault.Pair) (add, remove []netlink.Rule, err error) {
	wanted := map[selector]bool{}
	for _, p := range pairs {
		wanted[selectorOf(p)] = true
	}
	used := map[int]bool{}
	for _, rule := range existing {
		if rule.Priority < FirstPriority || rule.Priority > LastPriority {
			continue
		}
		if found, ours := selectorOfRule(rule); ours && wanted[found] {
			delete(wanted, found)
			used[rule.Priority] = true
			continue
		}
		remove = append(remove, rule)
		// Additions come first: a rule that still stands at the same priority is no conflict for the kernel, but a trap for a reader.
		used[rule.Priority] = true
	}
	priority := FirstPriority
	for _, p := range pairs {
		if !wanted[selectorOf(p)] {
			continue
		}
		for used[priority] {
			priority++
		}
		if priority > LastPriority {
			return nil, nil, fmt.Errorf("too many pairs: %d, the limit is %d rules", len(pairs), LastPriority-FirstPriority+1)
		}
		used[priority] = true
		add = append(add, newRule(selectorOf(p), priority))
	}
	return add, remove, nil
}

func newRule(s selector, priority int) netlink.Rule {
	rule := netlink.NewRule()
	rule.Family = netlink.FAMILY_V4
	rule.Priority = priority
	rule.Table = Table
	rule.Protocol = protocol
	rule.IifName = s.ingress
	rule.Src = ipNet(s.source)
	rule.Dst = ipNet(s.destination)
	return *rule
}

// selectorOfRule reads back what newRule made; ours is false when the rule is anything else.
func selectorOfRule(rule netlink.Rule) (s selector, ours bool) {
	source, okSource := prefix(rule.Src)
	destination, okDestination := prefix(rule.Dst)
	if !okSource || !okDestination {
		return selector{}, false
	}
	s = selector{source: source, destination: destination, ingress: rule.IifName}
	return s, rule.Table == Table && rule.Protocol == protocol && !rule.Invert && rule.Mark == 0 && rule.OifName == "" && rule.IPProto == 0
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	address, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address, bits), ok
}

// ruleTable is the list of policy rules of a network namespace.
type ruleTable struct {
	handle *netlink.Handle
}

// set makes our priority range select exactly the given pairs and returns what it changed. Additions come before
// removals, so that a pair which stays is never without a rule.
func (t ruleTable) set(pairs []fault.Pair) (changes []string, err error) {
	existing, err := t.handle.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list ip rules: %w", err)
	}
	add, remove, err := diffRules(existing, pairs)
	if err != nil {
		return nil, err
	}
	for _, rule := range add {
		if err := t.handle.RuleAdd(&rule); err != nil {
			return changes, fmt.Errorf("add %s: %w", describe(rule), err)
		}
		changes = append(changes, "add "+describe(rule))
	}
	var failures []error
	for _, rule := range remove {
		if err := t.handle.RuleDel(&rule); err != nil {
			failures = append(failures, fmt.Errorf("remove %s: %w", describe(rule), err))
			continue
		}
		changes = append(changes, "remove "+describe(rule))
	}
	return changes, errors.Join(failures...)
}

func describe(rule netlink.Rule) string {
	s, _ := selectorOfRule(rule)
	return fmt.Sprintf("ip rule %d: %s lookup %d", rule.Priority, s, rule.Table)
}
