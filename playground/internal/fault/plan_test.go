// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func threeClusters() Topology {
	return Topology{
		Host:       {Prefix: netip.MustParsePrefix("10.210.0.0/24"), Interface: "host"},
		"rome":     {Prefix: netip.MustParsePrefix("10.210.1.0/24"), Interface: "br1"},
		"milan":    {Prefix: netip.MustParsePrefix("10.210.2.0/24"), Interface: "br2"},
		"florence": {Prefix: netip.MustParsePrefix("10.210.3.0/24"), Interface: "br3"},
	}
}

// behindNAT is threeClusters with rome and florence behind one NAT router.
func behindNAT() Topology {
	topology := threeClusters()
	for _, name := range []string{"rome", "florence"} {
		site := topology[name]
		site.Behind = "nat1-in"
		topology[name] = site
	}
	return topology
}

// TestPlanGolden compares the plan of each state with the file testdata/NAME.golden, which a reviewer reads.
func TestPlanGolden(t *testing.T) {
	ms := time.Millisecond
	for name, state := range map[string]State{
		"healthy":   {},
		"partition": State{}.Partition("rome", "milan", false),
		"one_way":   State{}.Partition("rome", "milan", true),
		"loss":      State{}.SetLoss("rome", "milan", 29),
		"delay":     State{}.SetDelay("milan", "rome", Delay{Mean: 50 * ms, Jitter: 5 * ms}),
		"bandwidth": State{}.SetBandwidth("rome", Host, 500*Kilobit),
		"allow":     State{}.Allow("rome", "milan", ports("udp/31000-31010", "tcp/443", "icmp", "tcp/443"), false),
		"allow_one": State{}.Allow("rome", "milan", ports("udp/31000", "tcp/443", "icmp"), true).SetLoss("rome", "milan", 100).
			SetDelay("rome", "milan", Delay{Mean: 5 * ms}),
		"links_nat": State{}.Allow("milan", "rome", ports("udp/9"), true).SetLoss("rome", "florence", 100).SetLoss("rome", "milan", 100).
			SetDelay("rome", Host, Delay{Mean: 5 * ms}).SetDelay("rome", "milan", Delay{Mean: 5 * ms}),
		"everything": State{}.Partition("rome", "milan", true).SetLoss("rome", "milan", 500).SetDelay("milan", "rome", Delay{Mean: 20 * ms}).
			SetBandwidth("rome", "milan", 100*Megabit).SetLoss(Host, "florence", FullLoss).Partition("florence", "rome", false),
	} {
		t.Run(name, func(t *testing.T) {
			topology := threeClusters()
			if strings.HasSuffix(name, "_nat") {
				topology = behindNAT()
			}
			plan, err := NewPlan(state, topology)
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Emulation.Validate(); err != nil {
				t.Errorf("the emulator would refuse the plan: %v", err)
			}
			emulation, err := json.MarshalIndent(plan.Emulation, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got := "# nft\n" + plan.NFT + "# emulation\n" + string(emulation) + "\n"
			file := filepath.Join("testdata", name+".golden")
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
		})
	}
}

func TestNewPlanRefuses(t *testing.T) {
	site := func(prefix, name string) Topology {
		topology := threeClusters()
		topology["naples"] = Site{Prefix: netip.MustParsePrefix(prefix), Interface: name}
		return topology
	}
	for _, test := range []struct {
		name     string
		state    State
		topology Topology
		want     string
	}{
		{"unknown", State{}.Partition("rome", "paris", false), threeClusters(), `unknown cluster "paris"; known are: florence, host, milan, rome`},
		{"itself", State{}.Partition("rome", "rome", false), threeClusters(), "itself"},
		{"twice", State{Links: []Link{{A: "rome", B: "milan"}, {A: "milan", B: "rome"}}}, threeClusters(), "listed twice"},
		{"loss", State{}.SetLoss("rome", "milan", 10001), threeClusters(), "link milan <-> rome: loss 100.01%"},
		{"port", State{}.Allow("rome", "milan", []Port{{Protocol: "sctp", First: 1, Last: 1}}, true), threeClusters(), `port "sctp/1"`},
		{"delay", State{}.SetDelay("rome", "milan", Delay{Mean: time.Hour}), threeClusters(), "more than 10s"},
		{"jitter", State{}.SetDelay("rome", "milan", Delay{Mean: 1, Jitter: 2}), threeClusters(), "jitter"},
		{"bandwidth", State{}.SetBandwidth("rome", "milan", 1), threeClusters(), "not between"},
		{"overlap", State{}, site("10.210.2.128/25", "br4"), "overlaps network 10.210.2.0/24 of milan"},
		{"IPv6", State{}, site("fd00::/64", "br4"), "IPv4 only"},
		{"host bits", State{}, site("10.210.4.1/24", "br4"), "write 10.210.4.0/24"},
		{"no interface", State{}, site("10.210.4.0/24", ""), "not an interface name"},
		{"injection", State{}, site("10.210.4.0/24", `x" drop`), "not an interface name"},
		{"other NAT", State{}.Partition("rome", "milan", true), Topology{
			"rome":  {Prefix: netip.MustParsePrefix("10.210.1.0/24"), Interface: "br1", Behind: "nat1-in"},
			"milan": {Prefix: netip.MustParsePrefix("10.210.2.0/24"), Interface: "br2", Behind: "nat2-in"},
		}, "different NAT routers"},
		{"wildcard", State{}, site("10.210.4.0/24", "br*"), "not an interface name"},
		{"quote in a name", State{}, Topology{`a"b`: {}}, "not a name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := NewPlan(test.state, test.topology); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestTopologyCheck(t *testing.T) {
	for _, test := range []struct {
		sites []string
		want  string
	}{
		{nil, ""},
		{[]string{"rome"}, ""},
		{[]string{"rome", Host}, ""},
		{[]string{"rome", "rome"}, "with itself"},
		{[]string{"rome", "mlian"}, "known are"},
	} {
		if err := threeClusters().Check(test.sites...); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got error %v, want %q", test.sites, err, test.want)
		}
	}
}

func TestEmulationValidate(t *testing.T) {
	valid := Pair{Source: netip.MustParsePrefix("10.210.1.0/24"), Destination: netip.MustParsePrefix("10.210.2.0/24"), Ingress: "br1"}
	for want, change := range map[string]func(*Pair){
		"destination: network ::/0": func(p *Pair) { p.Destination = netip.MustParsePrefix("::/0") },
		"source: network 0.0.0.0/0": func(p *Pair) { p.Source = netip.MustParsePrefix("0.0.0.0/0") },
		"not an interface name":     func(p *Pair) { p.Ingress = "" },
		"more than 10s":             func(p *Pair) { p.Delay.Mean = time.Minute },
		"not between":               func(p *Pair) { p.Bandwidth = 7 },
		"overlaps pair":             func(p *Pair) { p.Source = netip.MustParsePrefix("10.210.0.0/16") },
	} {
		broken := valid
		change(&broken)
		if err := (Emulation{Pairs: []Pair{valid, broken}}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if err := (Emulation{Pairs: []Pair{valid}}).Validate(); err != nil {
		t.Error(err)
	}
}
