// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

// rule is a policy rule and the attributes that a plan does not have.
type rule struct {
	hoststate.Rule
	odd string
}

func (r rule) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "rule %d", r.Priority)
	if r.Protocol != "" {
		fmt.Fprintf(&text, " ipproto %s", r.Protocol)
	}
	if r.InLink != "" {
		fmt.Fprintf(&text, " iif %s", r.InLink)
	}
	if r.To.IsValid() {
		fmt.Fprintf(&text, " to %s", r.To)
	}
	fmt.Fprintf(&text, " lookup %d", r.Table)
	return text.String()
}

// ruleSteps returns the steps for policy rules. A rule is ours only if it has one of our priorities and selects our table. The kernel cannot
// replace rules: one that differs in anything is another rule.
func (h *Host) ruleSteps(want hoststate.State) (steps, error) {
	var wanted, ours []rule
	var errs []error
	for _, one := range want.Rules {
		one.To = one.To.Masked()
		if !ourRule(one.Priority, one.Table) {
			errs = append(
				errs,
				fmt.Errorf("add %s: want a priority from %d to %d and table %d", rule{Rule: one}, hoststate.FirstRule, hoststate.LastRule, hoststate.Table),
			)
			continue
		}
		wanted = append(wanted, rule{Rule: one})
	}
	there := map[rule]netlink.Rule{}
	for _, family := range kernel.Families {
		list, err := kernel.Dump(func() ([]netlink.Rule, error) { return h.kernel.RuleList(family) })
		if err != nil {
			return steps{}, errors.Join(append(errs, fmt.Errorf("list rules: %w", err))...)
		}
		for _, one := range list {
			if ourRule(one.Priority, one.Table) {
				r := observedRule(one)
				ours, there[r] = append(ours, r), one
			}
		}
	}
	d := kernel.Diff(wanted, ours, nil, func(r rule) rule { return r })
	var todo steps
	for _, one := range d.Add {
		todo.make = append(todo.make, step{Change{verbAdd, one.String()}, func() error { return h.addRule(one.Rule) }})
	}
	for _, one := range d.Remove {
		old := there[one]
		todo.prune = append(todo.prune, step{Change{verbDelete, one.String()}, func() error { return h.kernel.RuleDel(&old) }})
	}
	return todo, errors.Join(errs...)
}

func ourRule(priority, table int) bool {
	return priority >= hoststate.FirstRule && priority <= hoststate.LastRule && table == hoststate.Table
}

func (h *Host) addRule(r hoststate.Rule) error {
	one := netlink.NewRule()
	one.Priority, one.Table, one.Dst, one.IifName, one.Family = r.Priority, r.Table, kernel.IPNet(r.To), r.InLink, netlink.FAMILY_V4
	switch r.Protocol {
	case "":
	case "icmp":
		one.IPProto = unix.IPPROTO_ICMP
	default:
		return fmt.Errorf("rules cannot select protocol %q", r.Protocol)
	}
	return h.kernel.RuleAdd(one)
}

func observedRule(one netlink.Rule) rule {
	r := rule{Rule: hoststate.Rule{Priority: one.Priority, To: kernel.PrefixOf(one.Dst), InLink: one.IifName, Table: one.Table}}
	if one.IPProto == unix.IPPROTO_ICMP {
		r.Protocol, one.IPProto = "icmp", 0
	}
	// After removing every attribute that a plan has, the rule must be empty.
	rest := one
	rest.Priority, rest.Dst, rest.IifName, rest.Table, rest.Family, rest.Protocol = 0, nil, "", 0, 0, 0
	empty := *netlink.NewRule()
	empty.Priority = 0
	if !reflect.DeepEqual(rest, empty) {
		r.odd = fmt.Sprintf("%#v", rest)
	}
	return r
}
