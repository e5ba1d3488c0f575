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
	outbound, inbound := pair("br1", "10.210.1.0/24", "10.210.2.0/24"), pair("br2", "10.210.2.0/24", "10.210.1.0/24")
	rule := func(p fault.Pair, priority int) netlink.Rule { return newRule(selectorOf(p), priority) }
	foreign := rule(outbound, 10002)
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
		{"first", nil, []fault.Pair{outbound, inbound}, "+10000 br1, +10001 br2"},
		{"again", []netlink.Rule{rule(inbound, 10007), rule(outbound, 10000)}, []fault.Pair{outbound, inbound}, ""},
		{
			"values do not matter",
			[]netlink.Rule{rule(outbound, 10000)},
			[]fault.Pair{{Source: outbound.Source, Destination: outbound.Destination, Ingress: "br1", Bandwidth: 9000}},
			"",
		},
		{"one more", []netlink.Rule{rule(outbound, 10000)}, []fault.Pair{inbound, outbound}, "+10001 br2"},
		{"one less", []netlink.Rule{rule(outbound, 10000), rule(inbound, 10001)}, []fault.Pair{inbound}, "-10000 br1"},
		{"another interface", []netlink.Rule{rule(outbound, 10000)}, []fault.Pair{pair("br3", "10.210.1.0/24", "10.210.2.0/24")}, "+10001 br3, -10000 br1"},
		{"double", []netlink.Rule{rule(outbound, 10000), rule(outbound, 10001)}, []fault.Pair{outbound}, "-10001 br1"},
		{"damaged in our range", []netlink.Rule{foreign, *everything}, []fault.Pair{outbound}, "+10000 br1, -10002 br1, -10003 "},
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
	many := []fault.Pair{outbound}
	for i := range 1000 {
		many = append(many, pair("br1", fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), "192.0.2.0/24"))
	}
	if _, _, err := diffRules(nil, many); err == nil {
		t.Errorf("%d pairs fit in %d priorities", len(many), LastPriority-FirstPriority+1)
	}
}
