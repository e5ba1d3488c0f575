// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"liqo.io/liqo/playground/internal/fault"
)

func pair(ingress, source, destination string) fault.Pair {
	return fault.Pair{Source: netip.MustParsePrefix(source), Destination: netip.MustParsePrefix(destination), Ingress: ingress}
}

func TestDiffRules(t *testing.T) {
	forth, back := pair("br1", "10.210.1.0/24", "10.210.2.0/24"), pair("br2", "10.210.2.0/24", "10.210.1.0/24")
	rule := func(p fault.Pair, priority int) netlink.Rule { return newRule(selectorOf(p), priority) }
	foreign := rule(forth, 10002)
	foreign.Table = 254
	everything := netlink.NewRule()
	everything.Priority, everything.Table = 10003, Table
	outside := rule(pair("br9", "10.210.9.0/24", "10.210.2.0/24"), LastPriority+1)

	for _, test := range []struct {
		name     string
		existing []netlink.Rule
		pairs    []fault.Pair
		want     string
	}{
		{"first", nil, []fault.Pair{forth, back}, "+10000 br1, +10001 br2"},
		{"again", []netlink.Rule{rule(back, 10007), rule(forth, 10000)}, []fault.Pair{forth, back}, ""},
		{"values do not matter", []netlink.Rule{rule(forth, 10000)}, []fault.Pair{{Source: forth.Source, Destination: forth.Destination, Ingress: "br1", Bandwidth: 9000}}, ""},
		{"one more", []netlink.Rule{rule(forth, 10000)}, []fault.Pair{back, forth}, "+10001 br2"},
		{"one less", []netlink.Rule{rule(forth, 10000), rule(back, 10001)}, []fault.Pair{back}, "-10000 br1"},
		{"another interface", []netlink.Rule{rule(forth, 10000)}, []fault.Pair{pair("br3", "10.210.1.0/24", "10.210.2.0/24")}, "+10001 br3, -10000 br1"},
		{"double", []netlink.Rule{rule(forth, 10000), rule(forth, 10001)}, []fault.Pair{forth}, "-10001 br1"},
		{"damaged in our range", []netlink.Rule{foreign, *everything}, []fault.Pair{forth}, "+10000 br1, -10002 br1, -10003 "},
		{"outside our range", []netlink.Rule{outside}, nil, ""},
		{"nothing", nil, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			add, remove, err := diffRules(test.existing, test.pairs)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range add {
				got = append(got, fmt.Sprintf("+%d %s", r.Priority, r.IifName))
			}
			for _, r := range remove {
				got = append(got, fmt.Sprintf("-%d %s", r.Priority, r.IifName))
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), test.want)
			}
		})
	}
	many := []fault.Pair{forth}
	for i := range 1000 {
		many = append(many, pair("br1", fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), "192.0.2.0/24"))
	}
	if _, _, err := diffRules(nil, many); err == nil {
		t.Errorf("%d pairs fit in %d priorities", len(many), LastPriority-FirstPriority+1)
	}
}
