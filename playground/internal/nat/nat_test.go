// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func TestState(t *testing.T) {
	one, first, err := State{}.Add("rome", "nice")
	if err != nil || first.String() != "nice, rome behind 203.0.113.1" || first.InsideLink() != "nat1-in" {
		t.Fatalf("got %s, %v", first, err)
	}
	two, second, err := one.Add("milan")
	if err != nil || second.String() != "milan behind 203.0.113.2" || len(one.Routers) != 1 {
		t.Fatalf("got %s, %v; the state before has %d routers", second, err, len(one.Routers))
	}
	for _, bad := range [][]string{{"nice"}, {"bern", "bern"}} {
		if _, _, err := two.Add(bad...); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
	for want, got := range map[string]State{
		"1 nice, rome behind 203.0.113.3; 2 milan behind 203.0.113.2": two.Readdress("rome"),
		"2 milan behind 203.0.113.2":                                  two.Remove("nice"),
		"1 rome behind 203.0.113.1; 2 milan behind 203.0.113.2":       two.Without("nice"),
		"1 nice, rome behind 203.0.113.1":                             two.Without("milan"),
		"1 nice, rome behind 203.0.113.1; 2 milan behind 203.0.113.2": two.Without("bern").Remove("bern").Readdress("bern"),
	} {
		var have []string
		for _, r := range got.Routers {
			have = append(have, fmt.Sprint(r.Number, " ", r))
		}
		if strings.Join(have, "; ") != want {
			t.Errorf("got %s, want %s", strings.Join(have, "; "), want)
		}
	}
	if !two.Has(first) || two.Without("nice").Has(first) || two.Readdress("nice").Has(first) {
		t.Error("want the same router only with the same clusters and the same address")
	}
	if again, third, err := two.Remove("rome").Add("bern"); err != nil || third.Number != 1 || len(again.Routers) != 2 {
		t.Errorf("the number of a removed router is not used again: %+v, %v", third, err)
	}
}

// TestForward: a forward of the same port replaces the first, and ends with its cluster. What is none is refused.
func TestForward(t *testing.T) {
	forward := func(cluster, port, to string) Forward {
		f, err := ParseForward(port, to)
		if err != nil {
			t.Fatal(err)
		}
		f.Cluster = cluster
		return f
	}
	state, _, err := State{}.Add("rome", "nice")
	if err != nil {
		t.Fatal(err)
	}
	before := state.Forward(forward("rome", "udp/5871", "10.111.1.2:1"))
	after := before.Forward(forward("nice", "udp/5871", "10.111.3.2:2")).Forward(forward("rome", "tcp/5871", "10.111.1.2:3"))
	if got := fmt.Sprint(
		after.Routers[0].Forwards, after.Without("nice").Routers[0].Forwards, len(before.Routers[0].Forwards), len(state.Routers[0].Forwards),
	); got != "[udp/5871 to 10.111.3.2:2 tcp/5871 to 10.111.1.2:3] [tcp/5871 to 10.111.1.2:3] 1 0" {
		t.Error(got)
	}
	if after.Has(before.Routers[0]) || !after.Has(after.Routers[0]) || len(state.Forward(forward("milan", "udp/1", "10.111.2.2:1")).Routers[0].Forwards) != 0 {
		t.Error("want the same router only with the same forwards, and no forward to a cluster that is not behind it")
	}
	for _, bad := range [][2]string{
		{"5871", "10.0.0.1:1"},
		{"sctp/1", "10.0.0.1:1"},
		{"udp/0", "10.0.0.1:1"},
		{"udp/65536", "10.0.0.1:1"},
		{"udp/1", "10.0.0.1"},
		{"udp/1", "[fd00::1]:1"},
		{"udp/1", "10.0.0.1:0"},
	} {
		if f, err := ParseForward(bad[0], bad[1]); err == nil {
			t.Errorf("%v: %s", bad, f)
		}
	}
}

// TestPlanGolden compares the plan of the second router, with two of three clusters behind it, with the file
// testdata/plan.golden.
func TestPlanGolden(t *testing.T) {
	all, err := topology.New(scenario.Scenario{Network: netip.MustParsePrefix("10.210.0.0/16"), Clusters: []scenario.Cluster{
		{Name: "rome", PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16")},
		{Name: "milan", PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16")},
		{Name: "nice", PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	router := Router{Number: 2, Clusters: []string{"nice", "rome"}, Address: netip.MustParseAddr("203.0.113.2")}
	p := New(router, all)
	router.Forwards = []Forward{
		{"udp", 5871, "rome", netip.MustParseAddrPort("10.210.1.2:31000")}, {"tcp", 443, "nice", netip.MustParseAddrPort("10.210.3.2:443")},
	}
	got := fmt.Sprintf("namespaces %s %s\ninside %+v\noutside %+v\naddress %s\nmembers %s\ndirect %s\ntable %d priority %d\n# filter\n%s# "+
		"unfilter\n%s# translate\n%s# with forwards\n%s",
		p.Router, p.NetNS, p.Inside, p.Outside, p.Address, p.Members, p.Direct, p.Table, p.Priority, p.Filter, p.Unfilter, p.Translate, New(router, all).Translate)
	const file = "testdata/plan.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (rewrite with -update):\n%s", file, got)
	}
}
