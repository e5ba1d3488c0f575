// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func prefixes(all ...string) (list []netip.Prefix) {
	for _, one := range all {
		list = append(list, prefix(one))
	}
	return list
}

func uses(all ...string) (list []Use) {
	for i, one := range all {
		list = append(list, Use{Name: fmt.Sprint("use ", i), Network: prefix(one)})
	}
	return list
}

// privateNetworks are pools of an administrator who has set them apart: what a peer announces in them is used as it is.
func privateNetworks() []netip.Prefix {
	return prefixes("10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12")
}

// TestAcquire: each row acquires in order; a result is the network itself, or the one assigned for it.
func TestAcquire(t *testing.T) {
	type ask struct{ owner, want, have string }
	for name, row := range map[string]struct {
		pools []netip.Prefix
		used  []Use
		asks  []ask
	}{
		"as it is":             {used: uses("10.200.0.0/16"), asks: []ask{{"a", "10.201.0.0/16", "10.201.0.0/16"}}},
		"our own pod network":  {used: uses("10.200.0.0/16", "10.96.0.0/16"), asks: []ask{{"a", "10.200.0.0/16", "10.0.0.0/16"}}},
		"a part of it":         {used: uses("10.200.0.0/16"), asks: []ask{{"a", "10.200.1.0/24", "10.0.0.0/24"}}},
		"what holds it":        {used: uses("10.0.0.0/16"), asks: []ask{{"a", "10.0.0.0/15", "10.2.0.0/15"}}},
		"outside of the pools": {asks: []ask{{"a", "100.64.0.0/16", "10.0.0.0/16"}}},
		"a public network":     {asks: []ask{{"a", "8.8.8.0/24", "10.0.0.0/24"}}},
		"a node's address":     {used: uses("192.168.7.4/32"), asks: []ask{{"a", "192.168.0.0/16", "10.0.0.0/16"}}},
		"three alike": {
			used: uses("10.200.0.0/16"),
			asks: []ask{{"a", "10.200.0.0/16", "10.0.0.0/16"}, {"b", "10.200.0.0/16", "10.1.0.0/16"}, {"c", "10.201.0.0/16", "10.201.0.0/16"}},
		},
		"asked twice":           {asks: []ask{{"a", "10.1.0.0/16", "10.1.0.0/16"}, {"a", "10.1.0.0/16", "10.1.0.0/16"}}},
		"another one is wanted": {asks: []ask{{"a", "10.1.0.0/16", "10.1.0.0/16"}, {"a", "10.2.0.0/16", "10.2.0.0/16"}, {"b", "10.1.0.0/16", "10.1.0.0/16"}}},
		"a whole pool": {
			pools: prefixes("192.168.0.0/16", "10.0.0.0/8"),
			asks:  []ask{{"a", "192.168.0.0/16", "192.168.0.0/16"}, {"b", "192.168.0.0/16", "10.0.0.0/16"}},
		},
		"pools in order": {
			pools: prefixes("192.168.0.0/24", "172.16.0.0/24"),
			asks:  []ask{{"a", "1.0.0.0/25", "192.168.0.0/25"}, {"b", "1.0.0.0/25", "192.168.0.128/25"}, {"c", "1.0.0.0/25", "172.16.0.0/25"}},
		},
		"small pools are stepped":  {pools: prefixes("192.168.0.0/24", "10.0.0.0/8"), asks: []ask{{"a", "1.0.0.0/16", "10.0.0.0/16"}}},
		"reserved equals a pool":   {pools: prefixes("10.0.0.0/8", "192.168.0.0/16"), used: uses("10.0.0.0/8"), asks: []ask{{"a", "10.1.0.0/16", "192.168.0.0/16"}}},
		"reserved outside of them": {pools: prefixes("10.0.0.0/8"), used: uses("8.0.0.0/8"), asks: []ask{{"a", "10.1.0.0/16", "10.1.0.0/16"}}},
		"a pool of public ones":    {pools: prefixes("10.0.0.0/8", "8.8.0.0/16"), asks: []ask{{"a", "8.8.8.0/24", "8.8.8.0/24"}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Pools{Networks: row.pools, Used: row.used}
			if p.Networks == nil {
				p.Networks = privateNetworks()
			}
			for _, ask := range row.asks {
				have, remapped, err := p.Acquire(ask.owner, PodNetwork, prefix(ask.want), NoWord)
				if err != nil || have != prefix(ask.have) || remapped != (ask.want != ask.have) {
					t.Errorf("%s wants %s: %s, remapped %t, %v; want %s", ask.owner, ask.want, have, remapped, err, ask.have)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, row := range []struct {
		want, message string
		is            error
	}{
		{"0.0.0.0/0", "every address", ErrInvalid},
		{"10.0.0.0/7", "larger than every pool (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12)", ErrInvalid},
		{"10.1.2.3/16", "the network is 10.1.0.0/16", ErrInvalid},
		{"127.0.0.0/16", "127.0.0.0/8", ErrInvalid},
		{"169.254.0.0/24", "169.254.0.0/16", ErrInvalid},
		{"224.1.0.0/16", "224.0.0.0/4", ErrInvalid},
		{"192.0.0.0/2", "224.0.0.0/4", ErrInvalid},
		{"255.255.255.255/32", "255.255.255.255/32", ErrInvalid},
		{"0.0.0.0/16", "0.0.0.0/8", ErrInvalid},
		{"fd00::/64", "IPv4", ErrInvalid},
		{"::ffff:10.0.0.0/112", "IPv4", ErrInvalid},
		{"10.200.0.0/16", "size /16 in the pools (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12); add one with networkManager.config.additionalPools", ErrExhausted},
	} {
		p := Pools{Networks: privateNetworks(), Used: uses("10.0.0.0/8", "192.168.0.0/17", "172.16.0.0/12")}
		_, _, err := p.Acquire("a", PodNetwork, prefix(row.want), NoWord)
		if !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.message) {
			t.Errorf("%s: %v, want %v with %q", row.want, err, row.is, row.message)
		}
	}
	p := Pools{Networks: privateNetworks()}
	if _, _, err := p.Acquire("a", PodNetwork, netip.Prefix{}, NoWord); !errors.Is(err, ErrInvalid) {
		t.Errorf("no network: %v", err)
	}
}

func TestRestore(t *testing.T) {
	p := Pools{Networks: privateNetworks(), Used: uses("10.200.0.0/16")}
	for _, row := range []struct {
		owner, want, have string
		kept              bool
	}{
		{"a", "10.200.0.0/16", "10.0.0.0/16", true},
		{"a", "10.200.0.0/16", "10.9.0.0/16", false}, // has one
		{"b", "10.1.0.0/16", "10.0.0.0/16", false},   // is a's
		{"b", "10.1.0.0/16", "10.200.0.0/16", false}, // is ours
		{"b", "10.1.0.0/16", "10.1.0.0/17", false},   // another size
		{"b", "10.1.0.0/16", "8.8.0.0/16", false},    // in no pool
		{"b", "10.0.0.0/8", "10.0.0.0/8", false},
		{"b", "0.0.0.0/0", "0.0.0.0/0", false},
		{"b", "10.1.0.0/16", "10.1.0.0/16", true},
	} {
		if got := p.Restore(Assignment{Owner: row.owner, Kind: PodNetwork, Want: prefix(row.want), Have: prefix(row.have)}); got != row.kept {
			t.Errorf("%s, %s as %s: %t", row.owner, row.want, row.have, got)
		}
	}
	if have, ok := p.Held("b", PodNetwork, prefix("10.1.0.0/16")); !ok || have != prefix("10.1.0.0/16") {
		t.Errorf("%s %t", have, ok)
	}
	if have, ok := p.Held("b", ExternalNetwork, prefix("10.1.0.0/16")); ok {
		t.Errorf("%s is held as another kind", have)
	}
	if have, _, err := p.Acquire("b", ExternalNetwork, prefix("10.1.0.0/16"), NoWord); err != nil || have != prefix("10.2.0.0/16") {
		t.Errorf("external network equal to the pods': %s, %v", have, err)
	}
}

// TestWritten: with the pools of a new installation, a network is used as it is only if an administrator wrote it down.
func TestWritten(t *testing.T) {
	for name, row := range map[string]struct {
		used []Use
		want string
		word Word
		have string
	}{
		"a resolver":               {nil, "10.0.0.0/30", NoWord, "242.0.0.0/30"},
		"the subnet of the nodes":  {nil, "192.0.2.0/24", NoWord, "242.0.0.0/24"},
		"a public network":         {nil, "8.8.8.0/24", NoWord, "242.0.0.0/24"},
		"a pod network":            {nil, "10.201.0.0/16", NoWord, "242.0.0.0/16"},
		"a pod network, written":   {nil, "10.201.0.0/16", Written, "10.201.0.0/16"},
		"a public one, written":    {nil, "198.51.100.0/24", Written, "198.51.100.0/24"},
		"written, but used here":   {uses("10.201.7.7/32"), "10.201.0.0/16", Written, "242.0.0.0/16"},
		"in the set apart":         {nil, "242.7.0.0/16", NoWord, "242.7.0.0/16"},
		"there, but used":          {uses("242.7.0.0/16"), "242.7.0.0/16", NoWord, "242.0.0.0/16"},
		"elsewhere in class E":     {nil, "250.7.0.0/16", NoWord, "242.0.0.0/16"},
		"larger than all, written": {nil, "10.0.0.0/7", Written, "10.0.0.0/7"},
	} {
		p := Pools{Networks: DefaultNetworks(), Used: row.used}
		have, _, err := p.Acquire("a", PodNetwork, prefix(row.want), row.word)
		if err != nil || have != prefix(row.have) {
			t.Errorf("%s: %s, %v, want %s", name, have, err, row.have)
		}
	}
}

// TestAttackNC1Nodes: what nodes reach by their own routes is led to no peer, written down or not, unless an administrator forces it by name. What is in use
// when a node begins to reach it stays.
func TestAttackNC1Nodes(t *testing.T) {
	apart := DefaultNetworks()[0]
	for name, row := range map[string]struct {
		reached []Use
		want    string
		word    Word
		have    string
	}{
		"a database's host, written":         {uses("10.7.0.5/32"), "10.7.0.0/16", Written, "242.0.0.0/16"},
		"a resolver, written":                {uses("10.0.0.2/32"), "10.0.0.0/30", Written, "242.0.0.0/30"},
		"a part of a wide route, written":    {uses("10.0.0.0/8"), "10.201.0.0/16", Written, "242.0.0.0/16"},
		"the same network, written":          {uses("10.201.0.0/16"), "10.201.0.0/16", Written, "242.0.0.0/16"},
		"forced":                             {uses("10.201.0.0/16"), "10.201.0.0/16", Forced, "10.201.0.0/16"},
		"beside it, written":                 {uses("10.202.0.0/16"), "10.201.0.0/16", Written, "10.201.0.0/16"},
		"what the peer has in the set apart": {uses("242.7.1.0/24"), "242.7.0.0/16", NoWord, "242.0.0.0/16"},
		"remapped beside it":                 {uses("242.0.0.0/15"), "10.201.0.0/16", NoWord, "242.2.0.0/16"},
	} {
		p := Pools{Networks: DefaultNetworks(), Reached: row.reached}
		have, _, err := p.Acquire("a", PodNetwork, prefix(row.want), row.word)
		if err != nil || have != prefix(row.have) {
			t.Errorf("%s: %s, %v, want %s", name, have, err, row.have)
		}
		// A node that begins to reach it, or stops, moves nothing that is in use, except by a word.
		for _, later := range [][]Use{nil, uses(row.want), {{Name: "all", Network: apart}}} {
			again := Pools{Networks: DefaultNetworks(), Reached: later, assigned: nil}
			if a := p.assigned[0]; !again.Restore(a) {
				t.Errorf("%s: %+v is not restored when nodes reach %v", name, a, later)
			}
			if kept, ok := again.Settled("a", PodNetwork, prefix(row.want), NoWord); !ok || kept != have {
				t.Errorf("%s: %s becomes %s, %t, when nodes reach %v", name, have, kept, ok, later)
			}
		}
	}
	p := Pools{Networks: DefaultNetworks(), Reached: []Use{{Name: "node n1", Network: apart}}}
	if have, _, err := p.Acquire("a", PodNetwork, prefix("10.201.0.0/16"), Written); err != nil || have != prefix("10.201.0.0/16") {
		t.Errorf("%s, %v", have, err)
	}
	if _, _, err := p.Acquire("b", PodNetwork, prefix("10.202.0.0/16"), NoWord); !errors.Is(err, ErrExhausted) ||
		!strings.Contains(err.Error(), "additionalPools") || !strings.Contains(err.Error(), "node n1") {
		t.Errorf("%v", err)
	}
	if _, err := p.External(16, nil); !errors.Is(err, ErrExhausted) {
		t.Errorf("%v", err)
	}
	if have, err := p.External(16, prefixes("242.5.0.0/16")); err != nil || have != prefix("242.5.0.0/16") {
		t.Errorf("%s, %v", have, err)
	}
	// A word that comes later moves a network that is in use; a route that goes does not, because it may come back and would then lead to the peer.
	p = Pools{Networks: DefaultNetworks()}
	for _, step := range []struct {
		reached []Use
		stays   bool
		word    Word
		have    string
	}{
		{uses("10.7.0.5/32"), false, NoWord, "242.0.0.0/16"},
		{uses("10.7.0.5/32"), true, Written, "242.0.0.0/16"},
		{nil, true, Written, "242.0.0.0/16"},
		{nil, false, Written, "10.7.0.0/16"}, // of a peer of which nodes never reached anything
		{uses("10.7.0.5/32"), true, Written, "10.7.0.0/16"},
		{uses("10.7.0.5/32"), true, Forced, "10.7.0.0/16"},
	} {
		p.Reached, p.Stay = step.reached, nil
		if step.stays {
			p.Stay = []string{"a"}
		}
		if have, _, err := p.Acquire("a", PodNetwork, prefix("10.7.0.0/16"), step.word); err != nil || have != prefix(step.have) {
			t.Errorf("%+v: %s, %v", step, have, err)
		}
	}
}

// TestShare: one peer gets no more than a /12, and no more than a quarter of the pools.
func TestShare(t *testing.T) {
	for name, row := range map[string]struct {
		pools, networks []netip.Prefix
		fits            bool
	}{
		"two of /16":           {DefaultNetworks(), prefixes("10.0.0.0/16", "10.1.0.0/16"), true},
		"two of /13":           {DefaultNetworks(), prefixes("10.0.0.0/13", "10.8.0.0/13"), true},
		"a /12":                {DefaultNetworks(), prefixes("10.0.0.0/12"), true},
		"a /12 and an address": {DefaultNetworks(), prefixes("10.0.0.0/12", "10.16.0.0/32"), false},
		"a /1":                 {DefaultNetworks(), prefixes("128.0.0.0/1"), false},
		"a quarter":            {prefixes("10.0.0.0/16"), prefixes("10.0.0.0/19", "10.1.0.0/19"), true},
		"a half":               {prefixes("10.0.0.0/16"), prefixes("10.0.0.0/18", "10.1.0.0/18"), false},
		"nothing":              {DefaultNetworks(), nil, true},
	} {
		err := (&Pools{Networks: row.pools}).CheckShare(row.networks)
		if (err == nil) != row.fits || err != nil && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), row.networks[0].String())) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWordChanges: a network that is written down later is used as it is from then on, and the record of one that is no longer written down is dropped.
func TestWordChanges(t *testing.T) {
	p := Pools{Networks: DefaultNetworks(), Avoid: uses("10.1.2.3/32")}
	acquire := func(word Word, want string) {
		t.Helper()
		if have, _, err := p.Acquire("a", PodNetwork, prefix("10.1.0.0/16"), word); err != nil || have != prefix(want) {
			t.Errorf("word %d: %s, %v, want %s", word, have, err, want)
		}
	}
	acquire(NoWord, "242.0.0.0/16")
	acquire(Written, "10.1.0.0/16") // an address that a peer named does not revoke the word
	again := Pools{Networks: DefaultNetworks()}
	for _, a := range p.assigned {
		if a.Written = false; again.Restore(a) {
			t.Errorf("%+v is restored without a word", a)
		}
	}
	// What the network overlaps decides again only if that is gone.
	p = Pools{Networks: DefaultNetworks(), Used: uses("10.1.0.0/24")}
	acquire(Written, "242.0.0.0/16")
	if _, ok := p.Settled("a", PodNetwork, prefix("10.1.0.0/16"), Written); !ok {
		t.Error("it is not settled, although nothing better is possible")
	}
	p.Used = nil
	if have, ok := p.Settled("a", PodNetwork, prefix("10.1.0.0/16"), Written); ok {
		t.Errorf("it is settled as %s, although it can be used as it is", have)
	}
}

// TestRestoreOfEarlierVersions: what an earlier version remapped into a private network stays, what it used as the peer claimed does not.
func TestRestoreOfEarlierVersions(t *testing.T) {
	for name, row := range map[string]struct {
		a    Assignment
		kept bool
	}{
		"remapped":                 {Assignment{Want: prefix("10.200.0.0/16"), Have: prefix("10.1.0.0/16"), Agreed: true}, true},
		"remapped, by the answer":  {Assignment{Want: prefix("10.200.0.0/16"), Have: prefix("10.1.0.0/16")}, false}, // the peer writes there
		"as claimed":               {Assignment{Want: prefix("10.1.0.0/16"), Have: prefix("10.1.0.0/16"), Agreed: true}, false},
		"as claimed, written":      {Assignment{Want: prefix("10.1.0.0/16"), Have: prefix("10.1.0.0/16"), Agreed: true, Written: true}, true},
		"remapped to a public one": {Assignment{Want: prefix("10.1.0.0/16"), Have: prefix("8.8.0.0/16"), Agreed: true, Written: true}, false},
		"remapped now":             {Assignment{Want: prefix("10.1.0.0/16"), Have: prefix("242.1.0.0/16")}, true},
	} {
		p := Pools{Networks: DefaultNetworks()}
		row.a.Owner, row.a.Kind = "a", PodNetwork
		if got := p.Restore(row.a); got != row.kept {
			t.Errorf("%s: restored %t", name, got)
		}
	}
	p := Pools{Networks: DefaultNetworks()}
	if got, err := p.External(16, prefixes("8.8.0.0/16", "10.0.0.0/16")); err != nil || got != prefix("10.0.0.0/16") {
		t.Errorf("our external network as recorded by an earlier version: %s, %v", got, err)
	}
	if got, err := p.External(16, nil); err != nil || got != prefix("242.0.0.0/16") {
		t.Errorf("our external network: %s, %v", got, err)
	}
}

func TestCheckReserved(t *testing.T) {
	own := []Use{{"pod network", prefix("10.200.0.0/16")}, {"service network", prefix("10.96.0.0/16")}}
	if err := CheckReserved(privateNetworks(), prefixes("10.0.0.0/16", "192.168.0.0/16"), own); err != nil {
		t.Error(err)
	}
	for _, reserved := range []string{"10.200.3.0/24", "10.0.0.0/8"} {
		err := CheckReserved(privateNetworks(), prefixes(reserved), own)
		if err == nil || !strings.Contains(err.Error(), reserved) || !strings.Contains(err.Error(), "10.200.0.0/16") {
			t.Errorf("reserved %s: %v", reserved, err)
		}
	}
	if err := CheckReserved(prefixes("0.0.0.0/0"), nil, own); err == nil {
		t.Error("everything is a pool")
	}
}

func TestExternal(t *testing.T) {
	p := Pools{Networks: privateNetworks(), Used: uses("10.0.0.0/16", "10.96.0.0/16")}
	for _, row := range []struct {
		record []netip.Prefix
		want   string
	}{
		{nil, "10.1.0.0/16"},
		{prefixes("10.70.0.0/16"), "10.70.0.0/16"},
		{prefixes("10.96.0.0/16", "10.70.0.0/24", "8.8.0.0/16", "10.71.0.0/16"), "10.71.0.0/16"},
		{[]netip.Prefix{{}}, "10.1.0.0/16"},
	} {
		if got, err := p.External(16, row.record); err != nil || got != prefix(row.want) {
			t.Errorf("on record %v: %s, %v, want %s", row.record, got, err, row.want)
		}
	}
}

func TestFreeMapping(t *testing.T) {
	external, taken := prefix("10.70.0.0/26"), map[netip.Addr]bool{}
	for {
		address, err := FreeMapping(external, taken)
		if err != nil {
			if !errors.Is(err, ErrExhausted) {
				t.Error(err)
			}
			break
		}
		if taken[address] || !external.Contains(address) || !IsMappable(external, address) {
			t.Fatalf("%s", address)
		}
		taken[address] = true
	}
	if len(taken) != 64-16-3-1 { // not the first 16, no further multiples of it, not the last address
		t.Errorf("%d addresses", len(taken))
	}
}

// oracle tries every address. It is slow and does not compare prefixes.
type oracle struct {
	owner map[netip.Addr]string // of each address
	pool  map[netip.Addr]bool
	pools []netip.Prefix
}

func each(network netip.Prefix, visit func(netip.Addr)) {
	for address := network.Masked().Addr(); network.Contains(address); address = address.Next() {
		visit(address)
	}
}

func newOracle(pools []netip.Prefix, used []Use) *oracle {
	o := &oracle{owner: map[netip.Addr]string{}, pool: map[netip.Addr]bool{}, pools: pools}
	for _, use := range used {
		each(use.Network, func(a netip.Addr) { o.owner[a] = use.Name })
	}
	return o
}

func (o *oracle) fits(network netip.Prefix) bool {
	free := true
	each(network, func(a netip.Addr) {
		in := slices.ContainsFunc(o.pools, func(p netip.Prefix) bool { return p.Contains(a) && p.Bits() <= network.Bits() })
		if o.owner[a] != "" || !in {
			free = false
		}
	})
	return free
}

func (o *oracle) acquire(owner string, want netip.Prefix) (netip.Prefix, bool) {
	var released []netip.Addr
	for a, before := range o.owner {
		if before == owner {
			released = append(released, a)
			delete(o.owner, a)
		}
	}
	have, found := want, o.fits(want)
	for _, pool := range o.pools {
		if found {
			break
		}
		each(pool, func(a netip.Addr) {
			candidate := netip.PrefixFrom(a, want.Bits())
			if !found && candidate == candidate.Masked() && pool.Bits() <= want.Bits() && o.fits(candidate) {
				have, found = candidate, true
			}
		})
	}
	if found {
		each(have, func(a netip.Addr) { o.owner[a] = owner })
	} else { // what it had stays
		for _, a := range released {
			o.owner[a] = owner
		}
	}
	return have, found
}

// TestOracle: on small pools, the allocator agrees with an oracle that tries every address, and no two peers share one.
func TestOracle(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		network := func(shortest int) netip.Prefix {
			bits := shortest + random.IntN(33-shortest)
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(2)), byte(random.IntN(256))}), bits).Masked()
		}
		pools := []netip.Prefix{prefix("10.0.0.64/26"), prefix("10.0.1.0/25")}
		var used []Use
		for i := range random.IntN(4) {
			used = append(used, Use{fmt.Sprint("used", i), network(26)})
		}
		p, o := Pools{Networks: pools, Used: used}, newOracle(pools, used)
		held := map[string]netip.Prefix{}
		for range 25 {
			owner, want := fmt.Sprint("peer", random.IntN(6)), network(25)
			if random.IntN(4) == 0 && held[owner].IsValid() {
				want = held[owner]
			}
			had, kept := p.Held(owner, PodNetwork, want)
			got, _, err := p.Acquire(owner, PodNetwork, want, NoWord)
			if kept {
				if got != had || err != nil {
					t.Fatalf("seed %d: %s had %s, now %s, %v", seed, owner, had, got, err)
				}
				continue
			}
			right, found := o.acquire(owner, want)
			if found != (err == nil) || found && got != right {
				t.Fatalf("seed %d: %s wants %s: %s, %v; the oracle %s %t\nused %v\nassigned %v", seed, owner, want, got, err, right, found, used, p.assigned)
			}
			if err == nil {
				held[owner] = want
			}
		}
		// Pools that are rebuilt from the recorded assignments, in any order, are the same.
		again := Pools{Networks: pools, Used: used}
		for _, i := range random.Perm(len(p.assigned)) {
			if !again.Restore(p.assigned[i]) {
				t.Fatalf("seed %d: %v does not come back", seed, p.assigned[i])
			}
		}
	}
}

func BenchmarkAcquireHundredPeers(b *testing.B) {
	for range b.N {
		p := Pools{Networks: privateNetworks(), Used: uses("10.200.0.0/16")}
		for i := range 100 {
			if _, _, err := p.Acquire(fmt.Sprint(i), PodNetwork, prefix("10.200.0.0/16"), NoWord); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestAvoid: addresses that peers named affect new assignments only, and cannot exhaust the pools.
func TestAvoid(t *testing.T) {
	pools := func(avoid ...string) *Pools {
		return &Pools{Networks: prefixes("10.0.0.0/14"), Used: uses("10.0.0.0/16"), Avoid: uses(avoid...)}
	}
	for name, row := range map[string]struct {
		avoid      []string
		want, have string
	}{
		"elsewhere":                           {[]string{"192.0.2.1/32", "10.2.0.1/32"}, "10.1.0.0/16", "10.1.0.0/16"},
		"in what is wanted":                   {[]string{"10.1.2.3/32"}, "10.1.0.0/16", "10.2.0.0/16"},
		"in the first as well":                {[]string{"10.1.2.3/32", "10.2.255.255/32"}, "10.1.0.0/16", "10.3.0.0/16"},
		"everywhere":                          {[]string{"10.1.2.3/32", "10.2.0.0/32", "10.3.0.0/32"}, "10.3.0.0/16", "10.1.0.0/16"},
		"what is ours is not given even then": {[]string{"10.1.2.3/32", "10.2.0.0/32", "10.3.0.0/32"}, "10.0.0.0/16", "10.1.0.0/16"},
	} {
		p := pools(row.avoid...)
		if have, _, err := p.Acquire("a", PodNetwork, prefix(row.want), NoWord); err != nil || have != prefix(row.have) {
			t.Errorf("%s: %s, %v, want %s", name, have, err, row.have)
		}
		if slices.Contains(p.Inside(), prefix(row.avoid[0])) {
			t.Errorf("%s: %s is inside", name, row.avoid[0])
		}
	}
	p := pools("10.1.2.3/32")
	if !p.Restore(Assignment{Owner: "a", Kind: PodNetwork, Want: prefix("10.1.0.0/16"), Have: prefix("10.1.0.0/16")}) {
		t.Error("what was given is lost because of an address in it")
	}
	if have, _, err := p.Acquire("a", PodNetwork, prefix("10.1.0.0/16"), NoWord); err != nil || have != prefix("10.1.0.0/16") {
		t.Errorf("what was given is changed to %s, %v", have, err)
	}
	if have, err := pools("10.1.2.3/32").External(16, nil); err != nil || have != prefix("10.2.0.0/16") {
		t.Errorf("our external network: %s, %v", have, err)
	}
	if have, err := pools("10.1.2.3/32").External(16, prefixes("10.1.0.0/16")); err != nil || have != prefix("10.1.0.0/16") {
		t.Errorf("our external network as recorded: %s, %v", have, err)
	}
}

// TestAttackNC1Answer: a peer writes into the answer to it that a network is used as it is, which an administrator wrote down and a node reaches,
// before there is a tunnel. That is no agreement.
func TestAttackNC1Answer(t *testing.T) {
	network := netip.MustParsePrefix("10.50.0.0/16")
	for _, agreed := range []bool{false, true} {
		p := &Pools{Networks: DefaultNetworks(), Reached: []Use{{Name: "node n1 by a route", Network: netip.MustParsePrefix("10.50.9.0/24")}}}
		p.Restore(Assignment{Owner: "milan", Kind: PodNetwork, Want: network, Have: network, Written: true, Agreed: agreed})
		have, remapped, err := p.Acquire("milan", PodNetwork, network, Written)
		if err != nil || remapped == agreed {
			t.Errorf("agreed %t: reached as %s, %v", agreed, have, err)
		}
	}
}

// TestPlaces: the two ends of a peering never choose the same network for each other, whichever pools both have and how many peers; others rarely do.
// What is assigned stays, and every network of a pool is found in the end.
func TestPlaces(t *testing.T) {
	id := func(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", uint32(i)*2654435761) }
	pods := prefix("10.200.0.0/16")
	const clusters = 12
	all := make([]*Pools, clusters)
	for i := range all {
		all[i] = &Pools{Networks: DefaultNetworks(), Used: uses("10.200.0.0/16", "242.0.0.0/16")}
	}
	seen := map[[2]int][2]netip.Prefix{} // by the first, of the second: pods and others
	for a := range clusters {
		for b := range clusters {
			if a == b {
				continue
			}
			p := all[a]
			p.Here, p.There = id(a), id(b)
			var both [2]netip.Prefix
			for i, kind := range []Kind{PodNetwork, ExternalNetwork} {
				have, _, err := p.Acquire(id(b), kind, []netip.Prefix{pods, prefix("242.0.0.0/16")}[i], NoWord)
				if err != nil {
					t.Fatal(err)
				}
				both[i] = have
			}
			seen[[2]int{a, b}] = both
		}
	}
	vacant := 0
	for pair, ours := range seen {
		theirs := seen[[2]int{pair[1], pair[0]}]
		if ours[0] == theirs[0] || ours[0] == theirs[1] || ours[1] == theirs[0] {
			t.Errorf("clusters %s and %s both chose %s and %s", id(pair[0]), id(pair[1]), ours, theirs)
		}
		if all[pair[0]].IsVacant(theirs[0]) {
			vacant++
		}
	}
	// Each has 22 of 255 networks in use.
	if want := len(seen) * 8 / 10; vacant < want {
		t.Errorf("%d of %d networks that peers chose lead nowhere else, want %d or more", vacant, len(seen), want)
	}
	full := &Pools{Networks: []netip.Prefix{prefix("10.0.0.0/14")}, Here: id(2), There: id(1)}
	found := map[netip.Prefix]bool{}
	for i := range 4 {
		have, _, err := full.Acquire(fmt.Sprint(i), PodNetwork, pods, NoWord)
		if err != nil {
			t.Fatal(err)
		}
		found[have] = true
	}
	if _, _, err := full.Acquire("another", PodNetwork, pods, NoWord); len(found) != 4 || !errors.Is(err, ErrExhausted) {
		t.Errorf("found %v, and then %v", found, err)
	}
}
