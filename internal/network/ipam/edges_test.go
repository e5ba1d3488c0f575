// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
	"testing"
)

// TestOwnNetwork: a node has the first address of its own pod network, swapped, if that is within the pod network of the cluster and no smaller than
// the stride.
func TestOwnNetwork(t *testing.T) {
	external, pods := prefix("10.70.0.0/16"), prefix("10.200.0.0/16")
	for name, row := range map[string]struct {
		own  []netip.Prefix
		want string
	}{
		"a part":                        {prefixes("10.200.1.0/24"), "10.70.1.0"},
		"all of it":                     {prefixes("10.200.0.0/16"), "10.70.0.0"},
		"more than it":                  {prefixes("10.200.0.0/15"), ""},
		"as many as the stride":         {prefixes("10.200.1.16/28"), "10.70.1.16"},
		"fewer":                         {prefixes("10.200.1.16/29"), ""},
		"elsewhere":                     {prefixes("10.9.0.0/24"), ""},
		"elsewhere, and a part":         {prefixes("10.9.0.0/24", "10.200.2.0/24"), "10.70.2.0"},
		"of two families":               {prefixes("fd00::/64", "10.200.2.0/24"), "10.70.2.0"},
		"more than it, and a part":      {prefixes("10.192.0.0/10", "10.200.2.0/24"), "10.70.2.0"},
		"too small, and a part":         {prefixes("10.200.3.4/30", "10.200.2.0/24"), "10.70.2.0"},
		"a part, with bits of a host":   {prefixes("10.200.2.9/24"), "10.70.2.0"},
		"no network of pods of its own": {nil, ""},
	} {
		got, ok := byNetwork(external, pods, row.own)
		if ok != (row.want != "") || ok && got.String() != row.want {
			t.Errorf("%s: %s, %t, want %q", name, got, ok, row.want)
		}
	}
}

// TestRestored: what a record must be to count, in both of its networks; an owner has one of each kind.
func TestRestored(t *testing.T) {
	p := Pools{Networks: privateNetworks()}
	for name, a := range map[string]Assignment{
		"of no network":                {Have: prefix("10.3.0.0/16")},
		"of loopback":                  {Want: prefix("127.0.0.0/16"), Have: prefix("10.3.0.0/16")},
		"of a network with host bits":  {Want: prefix("10.9.1.0/16"), Have: prefix("10.3.0.0/16")},
		"to a network with host bits":  {Want: prefix("10.9.0.0/16"), Have: prefix("10.3.1.0/16")},
		"to nothing":                   {Want: prefix("10.9.0.0/16")},
		"to a smaller one in the pool": {Want: prefix("10.9.0.0/16"), Have: prefix("10.3.0.0/17")},
	} {
		if a.Owner, a.Kind = "a", PodNetwork; p.Restore(a) {
			t.Errorf("%s: %+v is restored", name, a)
		}
	}
	for _, kind := range []Kind{PodNetwork, ExternalNetwork} {
		have := map[Kind]string{PodNetwork: "10.3.0.0/16", ExternalNetwork: "10.4.0.0/16"}[kind]
		if !p.Restore(Assignment{Owner: "a", Kind: kind, Want: prefix("10.9.0.0/16"), Have: prefix(have)}) {
			t.Errorf("%s: not restored", kind)
		}
	}
}

// TestInside: what hosts of the clusters have, without what the administrator reserves for other uses.
func TestInside(t *testing.T) {
	p := Pools{Networks: DefaultNetworks(), Used: []Use{{"pod network", prefix("10.200.0.0/16")}, {ReservedName, prefix("10.99.0.0/16")}}}
	if _, _, err := p.Acquire("a", PodNetwork, prefix("10.1.0.0/16"), NoWord); err != nil {
		t.Fatal(err)
	}
	if got := p.Inside(); !slices.Equal(got, prefixes("10.200.0.0/16", "242.0.0.0/16")) {
		t.Errorf("%v", got)
	}
}

// TestInUse: only an assignment of just this network, of which only this cluster writes the record.
func TestInUse(t *testing.T) {
	want := prefix("10.1.0.0/16")
	p := Pools{Networks: DefaultNetworks()}
	for _, a := range []Assignment{
		{Owner: "a", Kind: PodNetwork, Want: want, Have: prefix("242.1.0.0/16"), Agreed: true},
		{Owner: "b", Kind: PodNetwork, Want: want, Have: prefix("242.2.0.0/16")},
	} {
		if !p.Restore(a) {
			t.Fatalf("%+v", a)
		}
	}
	for name, row := range map[string]struct {
		owner string
		kind  Kind
		want  netip.Prefix
		have  string
	}{
		"agreed":                  {"a", PodNetwork, want, "242.1.0.0/16"},
		"answered only":           {"b", PodNetwork, want, ""},
		"of another owner":        {"c", PodNetwork, want, ""},
		"of another kind":         {"a", ExternalNetwork, want, ""},
		"for another network":     {"a", PodNetwork, prefix("10.2.0.0/16"), ""},
		"for a part of the other": {"a", PodNetwork, prefix("10.1.0.0/17"), ""},
	} {
		have, ok := p.InUse(row.owner, row.kind, row.want)
		if ok != (row.have != "") || ok && have != prefix(row.have) {
			t.Errorf("%s: %s, %t, want %q", name, have, ok, row.have)
		}
	}
}

// TestSettled: a word moves what was remapped, unless nodes reached the network once; a word that forces moves it even then. What is used as it is stays so.
func TestSettled(t *testing.T) {
	want := prefix("10.7.0.0/16")
	for name, row := range map[string]struct {
		have    string // what is assigned
		stays   bool
		word    Word
		settled bool
	}{
		"nothing assigned":                        {"", false, Written, false},
		"remapped":                                {"242.0.0.0/16", false, NoWord, true},
		"remapped, written":                       {"242.0.0.0/16", false, Written, false},
		"remapped, written, nodes reached it":     {"242.0.0.0/16", true, Written, true},
		"remapped, forced":                        {"242.0.0.0/16", false, Forced, false},
		"remapped, forced, though nodes reached":  {"242.0.0.0/16", true, Forced, false},
		"as it is, written":                       {"10.7.0.0/16", false, Written, true},
		"as it is, forced":                        {"10.7.0.0/16", true, Forced, true},
		"as it is, no longer written, but agreed": {"10.7.0.0/16", false, NoWord, true},
	} {
		p := Pools{Networks: DefaultNetworks()}
		if row.have != "" && !p.Restore(Assignment{Owner: "a", Kind: PodNetwork, Want: want, Have: prefix(row.have), Written: true, Agreed: true}) {
			t.Fatalf("%s: not restored", name)
		}
		if row.stays {
			p.Stay = []string{"a"}
		}
		if have, ok := p.Settled("a", PodNetwork, want, row.word); ok != row.settled || ok && have != prefix(row.have) {
			t.Errorf("%s: %s, settled %t", name, have, ok)
		}
	}
}

// TestKinds: a new pod network of a peer releases its old one, and not its external network.
func TestKinds(t *testing.T) {
	p := Pools{Networks: privateNetworks()}
	acquire := func(kind Kind, want string) {
		t.Helper()
		if _, _, err := p.Acquire("a", kind, prefix(want), NoWord); err != nil {
			t.Fatal(err)
		}
	}
	acquire(PodNetwork, "10.1.0.0/16")
	acquire(ExternalNetwork, "10.2.0.0/16")
	acquire(PodNetwork, "10.3.0.0/16")
	for want, held := range map[string]bool{"10.1.0.0/16": false, "10.3.0.0/16": true} {
		if _, ok := p.Held("a", PodNetwork, prefix(want)); ok != held {
			t.Errorf("%s is held: %t", want, ok)
		}
	}
	if _, ok := p.Held("a", ExternalNetwork, prefix("10.2.0.0/16")); !ok {
		t.Error("the external network is lost")
	}
	if rest := p.Without("a"); len(rest.Inside()) != 0 || len(p.Inside()) != 2 {
		t.Errorf("without it: %v of %v", rest.Inside(), p.Inside())
	}
}

// TestVacant: nothing leads to a network that is set apart, is in no use, and that no node reaches. Who reaches a part of a network is named.
func TestVacant(t *testing.T) {
	p := Pools{Networks: DefaultNetworks(), Used: uses("242.1.0.0/16"), Reached: []Use{{"node n1", prefix("242.2.3.0/24")}, {"node n2", prefix("242.2.0.0/15")}}}
	for network, row := range map[string]struct {
		vacant  bool
		reached []string
	}{
		"242.9.0.0/16": {true, nil},
		"242.1.0.0/16": {false, nil},
		"242.1.7.0/24": {false, nil},
		"242.2.0.0/16": {false, []string{"node n1", "node n2"}},
		"242.3.0.0/16": {false, []string{"node n2"}},
		"10.9.0.0/16":  {false, nil},
		"242.0.0.0/7":  {false, []string{"node n1", "node n2"}},
	} {
		if got := p.IsVacant(prefix(network)); got != row.vacant {
			t.Errorf("%s is vacant: %t", network, got)
		}
		var names []string
		for _, use := range p.Reaches(prefix(network)) {
			names = append(names, use.Name)
		}
		if !slices.Equal(names, row.reached) {
			t.Errorf("%s is reached by %v, want %v", network, names, row.reached)
		}
	}
}

// TestRecall: a record with host bits, of another size, or of what is used now is not our external network.
func TestRecall(t *testing.T) {
	p := Pools{Networks: DefaultNetworks(), Used: uses("242.1.0.0/16")}
	for record, ok := range map[string]bool{
		"242.7.0.0/16": true, "10.7.0.0/16": true, "242.7.1.0/16": false, "242.7.0.0/17": false, "8.8.0.0/16": false, "242.1.0.0/16": false,
	} {
		if got, recalled := p.Recall(16, []netip.Prefix{{}, prefix(record)}); recalled != ok || ok && got != prefix(record) {
			t.Errorf("%s: %s, %t", record, got, recalled)
		}
	}
}

// TestFirst: a pool of just the size serves, and one that is no network of hosts as a whole serves in no part. Without both IDs the first free
// network is taken.
func TestFirst(t *testing.T) {
	for name, row := range map[string]struct {
		pools       []netip.Prefix
		here, there string
		want        string
	}{
		"just the size":         {prefixes("192.168.0.0/16"), "", "", "192.168.0.0/16"},
		"a pool with multicast": {prefixes("192.0.0.0/2", "10.0.0.0/8"), "", "", "10.0.0.0/16"},
		"no ID of ours":         {DefaultNetworks(), "", "milan-id", "242.0.0.0/16"},
		"no ID of the peer":     {DefaultNetworks(), "rome-id", "", "242.0.0.0/16"},
	} {
		p := Pools{Networks: row.pools, Here: row.here, There: row.there}
		if got, _, err := p.Acquire("a", PodNetwork, prefix("8.8.0.0/16"), NoWord); err != nil || got != prefix(row.want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, row.want)
		}
	}
	halves := map[bool]bool{}
	for _, ids := range [][2]string{{"milan-id", "rome-id"}, {"rome-id", "milan-id"}} {
		p := Pools{Here: ids[0], There: ids[1]}
		halves[p.place() < 1<<31] = true
	}
	if len(halves) != 2 {
		t.Error("both ends start in the same half")
	}
}
