// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

func mustPool(t *testing.T, text string) settings.Pool {
	t.Helper()
	p, err := settings.ParsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAllocate(t *testing.T) {
	service := func(key string, created int64, current, wanted string) balanced {
		address, _ := netip.ParseAddr(current)
		return balanced{key: key, created: created, current: address, wanted: wanted, ipv4: true}
	}
	only6 := service("d/six", 1, "", "")
	only6.ipv4 = false
	for name, test := range map[string]struct {
		services []balanced
		want     map[string]string // key to address, or to a part of the problem
	}{
		"none": {nil, map[string]string{}},
		"lowest free, older first": {
			[]balanced{service("d/b", 2, "", ""), service("d/a", 3, "", ""), service("d/c", 1, "", "")},
			map[string]string{"d/c": "10.0.0.1", "d/b": "10.0.0.2", "d/a": "10.0.0.3"},
		},
		"kept though younger": {
			[]balanced{service("d/a", 1, "", ""), service("d/b", 2, "10.0.0.1", "")}, map[string]string{"d/b": "10.0.0.1", "d/a": "10.0.0.2"},
		},
		"request before any": {
			[]balanced{service("d/a", 1, "", ""), service("d/b", 2, "", "10.0.0.1")}, map[string]string{"d/b": "10.0.0.1", "d/a": "10.0.0.2"},
		},
		"changed request": {[]balanced{service("d/a", 1, "10.0.0.1", "10.0.0.3")}, map[string]string{"d/a": "10.0.0.3"}},
		"requested, taken": {
			[]balanced{service("d/a", 1, "10.0.0.1", ""), service("d/b", 2, "", "10.0.0.1")},
			map[string]string{"d/a": "10.0.0.1", "d/b": "in use by Service d/a"},
		},
		"requested, outside": {[]balanced{service("d/a", 1, "", "10.0.9.1")}, map[string]string{"d/a": "not in the pool 10.0.0.1-10.0.0.3"}},
		"requested, invalid": {[]balanced{service("d/a", 1, "", "x")}, map[string]string{"d/a": "not an address"}},
		"two hold the same": {
			[]balanced{service("d/a", 1, "10.0.0.2", ""), service("d/b", 2, "10.0.0.2", "")},
			map[string]string{"d/a": "10.0.0.2", "d/b": "10.0.0.1"},
		},
		"outside the pool is moved": {[]balanced{service("d/a", 1, "10.9.9.9", "")}, map[string]string{"d/a": "10.0.0.1"}},
		"no IPv4":                   {[]balanced{only6}, map[string]string{"d/six": "no IPv4"}},
		"exhausted": {
			[]balanced{service("d/a", 1, "", ""), service("d/b", 2, "", ""), service("d/c", 3, "", ""), service("d/d", 4, "", "")},
			map[string]string{"d/a": "10.0.0.1", "d/b": "10.0.0.2", "d/c": "10.0.0.3", "d/d": "all addresses of the pool 10.0.0.1-10.0.0.3 are in use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := allocate(mustPool(t, "10.0.0.1-10.0.0.3"), test.services)
			if len(got.addresses)+len(got.problems) != len(test.want) {
				t.Errorf("got %+v", got)
			}
			for key, want := range test.want {
				if address, has := got.addresses[key]; has && address.String() == want {
					continue
				}
				if problem := got.problems[key]; problem == "" || !strings.Contains(problem, want) {
					t.Errorf("%s: address %v, problem %q; want %q", key, got.addresses[key], problem, want)
				}
			}
		})
	}
}

// An allocation from the written addresses must equal the one that wrote them.
func TestAllocateIsStable(t *testing.T) {
	p := mustPool(t, "10.0.0.1-10.0.0.9")
	var services []balanced
	for i := range 9 {
		services = append(services, balanced{key: fmt.Sprint("d/", i), created: int64(100 - i), ipv4: true})
	}
	first := allocate(p, services)
	for i := range services {
		services[i].current = first.addresses[services[i].key]
	}
	if second := allocate(p, services); !reflect.DeepEqual(first, second) {
		t.Errorf("first %v\nthen %v", first, second)
	}
}

func TestAssign(t *testing.T) {
	var services []balanced
	addresses := map[string]netip.Addr{}
	address := netip.MustParseAddr("10.210.1.200")
	for i := range 51 {
		services = append(services, balanced{key: fmt.Sprint("d/", i), nodes: []string{"a", "b", "c"}})
		addresses[services[i].key] = address
		address = address.Next()
	}
	before := assign(services, addresses)
	count := map[string]int{}
	for _, node := range before {
		count[node]++
	}
	if len(before) != 51 || count["a"] < 8 || count["b"] < 8 || count["c"] < 8 {
		t.Errorf("51 addresses are spread as %v", count)
	}
	for i := range services {
		services[i].nodes = []string{"c", "a"} // b went, order does not matter
	}
	for address, node := range assign(services, addresses) {
		if before[address] != "b" && before[address] != node {
			t.Errorf("%s moved from %s to %s when b went", address, before[address], node)
		}
	}
	services[0].nodes = nil
	if len(assign(services, addresses)) != 50 {
		t.Error("an address without candidates has a holder")
	}
}

func TestCandidates(t *testing.T) {
	nodes := []carrier{{name: "a", ready: true}, {name: "b"}, {name: "c", ready: true, excluded: true}, {name: "d", ready: true}}
	for name, test := range map[string]struct {
		nodes     []carrier
		local     bool
		endpoints map[string]bool
		want      []string
	}{
		"ready ones":               {nodes, false, nil, []string{"a", "d"}},
		"local":                    {nodes, true, map[string]bool{"d": true, "c": true}, []string{"d"}},
		"local without endpoints":  {nodes, true, nil, nil},
		"none ready":               {nodes[1:2], false, nil, []string{"b"}},
		"local endpoint not ready": {nodes, true, map[string]bool{"b": true}, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := candidates(test.nodes, test.local, maps.Clone(test.endpoints)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
