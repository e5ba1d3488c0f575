// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

const many = 3000

// actions are the first actions from a seed, and the states before and after each.
func actions(seed uint64, count int) (all []Action, states []State) {
	r, s := rand.New(rand.NewPCG(seed, 0)), Busy(20, Many)
	states = append(states, s)
	for range count {
		a := Plan(r, s)
		s = s.After(a)
		all, states = append(all, a), append(states, s)
	}
	return all, states
}

// The same seed gives the same actions, another seed gives others, and all are allowed.
func TestPlan(t *testing.T) {
	one, states := actions(1, many)
	again, _ := actions(1, many)
	other, _ := actions(2, many)
	if !slices.Equal(one, again) {
		t.Error("the same seed gives other actions the second time")
	}
	if slices.Equal(one, other) {
		t.Error("two seeds give the same actions")
	}
	count := map[Verb]int{}
	for i, a := range one {
		count[a.Verb]++
		if before := states[i]; !before.Allowed(a) {
			t.Fatalf("action %d, %s, is not allowed in %+v", i, a, before)
		}
		unpeered, cordoned := 0, 0
		for _, p := range states[i+1].Providers {
			if !p.Peered {
				unpeered++
			}
			if p.Cordoned {
				cordoned++
			}
		}
		if pods := states[i+1].Pods(); unpeered > 1 || cordoned > 1 || pods > 340 || len(states[i+1].Namespaces) != 20 {
			t.Fatalf("after action %d, %s: %d unpeered, %d drained, %d pods, %d namespaces", i, a, unpeered, cordoned, pods, len(states[i+1].Namespaces))
		}
	}
	for _, verb := range []Verb{
		Offload, Unoffload, Apply, Restart, Delete, Peer, Unpeer, Drain, Uncordon, Label, Unlabel,
		KillProcess, KillComponent, CutLink, HealLink, StopComponent, StartComponent, StopNode, StartNode,
	} {
		if count[verb] == 0 {
			t.Errorf("of %d actions, none is %q: %v", many, verb, count)
		}
	}
}

// A fault that lasts ends after as many actions as it was planned for, and no other fault starts before.
func TestFaultsEnd(t *testing.T) {
	all, _ := actions(3, many)
	since, left := -1, 0
	for i, a := range all {
		switch {
		case a.Ends():
			if since < 0 || i-since != max(left, 1) {
				t.Errorf("action %d, %s, ends a fault that started at %d for %d actions", i, a, since, left)
			}
			since = -1
		case a.IsFault() && since >= 0:
			t.Errorf("action %d, %s, starts while the fault of action %d lasts", i, a, since)
		case a.Lasts():
			since, left = i, a.Value+1
		}
	}
}

// From whatever the actions lead to, Towards leads back to the start, to nothing, and from nothing to the start.
func TestTowards(t *testing.T) {
	same := func(a, b State) bool {
		a.Actions, b.Actions = 0, 0
		a.Most, b.Most = 0, 0
		return reflect.DeepEqual(a, b)
	}
	_, states := actions(4, many)
	for i := 0; i < len(states); i += 37 {
		for name, want := range map[string]State{"the start": Busy(20, Many), "nothing": Empty()} {
			s := states[i]
			for _, a := range Towards(s, want) {
				if a.Verb != Peer && a.Verb != Unpeer && !s.Allowed(a) && (a.Verb != Apply || s.Pods() < 320) {
					t.Fatalf("from state %d to %s: %s is not allowed", i, name, a)
				}
				s = s.After(a)
			}
			if !same(s, want) {
				t.Fatalf("from state %d to %s: %+v", i, name, s)
			}
			if again := Towards(s, want); len(again) > 0 {
				t.Fatalf("a second time from state %d to %s: %v", i, name, again)
			}
		}
	}
	s := Empty()
	for _, a := range Towards(s, Busy(20, Many)) {
		s = s.After(a)
	}
	if !same(s, Busy(20, Many)) || s.Pods() != 300 {
		t.Errorf("from nothing: %+v with %d pods", s, s.Pods())
	}
}

func TestAllowed(t *testing.T) {
	busy := Busy(2, Many)
	unpeered := busy.After(Action{Verb: Unpeer, Target: "milan"})
	drained := busy.After(Action{Verb: Drain, Target: "milan"})
	cut := busy.After(Action{Verb: CutLink, Target: "milan", Value: 5})
	for name, test := range map[string]struct {
		state  State
		action Action
		want   bool
	}{
		"a second provider is unpeered":     {unpeered, Action{Verb: Unpeer, Target: "turin"}, false},
		"an unpeered provider is peered":    {unpeered, Action{Verb: Peer, Target: "milan"}, true},
		"a peered one is peered":            {busy, Action{Verb: Peer, Target: "milan"}, false},
		"a second provider is drained":      {drained, Action{Verb: Drain, Target: "turin"}, false},
		"an unpeered provider is drained":   {unpeered, Action{Verb: Drain, Target: "milan"}, false},
		"the link to an unpeered one fails": {unpeered, Action{Verb: CutLink, Target: "milan", Value: 5}, false},
		"two faults":                        {cut, Action{Verb: KillProcess, Target: "turin", Object: "auth"}, false},
		"the end of the fault":              {cut, Action{Verb: HealLink, Target: "milan"}, true},
		"the end of another":                {cut, Action{Verb: HealLink, Target: "turin"}, false},
		"users go on during a fault":        {cut, Action{Verb: Unpeer, Target: "milan"}, true},
		"too many pods":                     {busy, Action{Verb: Apply, Target: "soak-a", Object: "deployment/web", Value: 100}, false},
		"the same value again":              {busy, Action{Verb: Apply, Target: "soak-a", Object: "deployment/web", Value: 8}, false},
		"an object that does not exist":     {busy, Action{Verb: Delete, Target: "soak-a", Object: "deployment/extra"}, false},
		"the same selector again":           {busy, Action{Verb: Offload, Target: "soak-a"}, false},
	} {
		if got := test.state.Allowed(test.action); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestChosen(t *testing.T) {
	s := Busy(5, Many) // soak-d in the north, soak-e in the south
	labelled := s.After(Action{Verb: Offload, Target: "soak-a", Selector: "pool=extra"}).After(Action{Verb: Label, Target: "turin"})
	for name, test := range map[string]struct {
		got, want []string
	}{
		"all":                      {s.Chosen("soak-a"), []string{"genoa", "milan", "turin"}},
		"north":                    {s.Chosen("soak-d"), []string{"milan", "turin"}},
		"south":                    {s.Chosen("soak-e"), []string{"genoa"}},
		"by a label":               {labelled.Chosen("soak-a"), []string{"turin"}},
		"a new node has no label":  {labelled.After(Action{Verb: Unpeer, Target: "turin"}).After(Action{Verb: Peer, Target: "turin"}).Chosen("soak-a"), nil},
		"not peered":               {s.After(Action{Verb: Unpeer, Target: "genoa"}).Chosen("soak-e"), nil},
		"not offloaded":            {s.After(Action{Verb: Unoffload, Target: "soak-a"}).Chosen("soak-a"), nil},
		"without such a namespace": {s.Chosen("none"), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %v, want %v", name, test.got, test.want)
		}
	}
}

func TestDeletes(t *testing.T) {
	s := Busy(2, Many).After(Action{Verb: Offload, Target: "soak-b", Selector: "pool=extra"})
	for name, test := range map[string]struct {
		action       Action
		names, nodes []string
	}{
		"fewer replicas":    {Action{Verb: Apply, Target: "soak-a", Object: "deployment/web", Value: 7}, []string{"soak-a/web-*"}, nil},
		"more replicas":     {Action{Verb: Apply, Target: "soak-a", Object: "deployment/web", Value: 9}, nil, nil},
		"a new workload":    {Action{Verb: Apply, Target: "soak-a", Object: "deployment/extra", Value: 1}, nil, nil},
		"other content":     {Action{Verb: Apply, Target: "soak-a", Object: "configmap/rules", Value: 7}, nil, nil},
		"a restart":         {Action{Verb: Restart, Target: "soak-a", Object: "statefulset/db"}, []string{"soak-a/db-*"}, nil},
		"a pod":             {Action{Verb: Delete, Target: "soak-a", Object: "pod/db-0"}, []string{"soak-a/db-0"}, nil},
		"a Service":         {Action{Verb: Delete, Target: "soak-a", Object: "service/db"}, nil, nil},
		"a drain":           {Action{Verb: Drain, Target: "milan"}, []string{"soak-a/db-*", "soak-b/db-*"}, []string{"liqo-milan"}},
		"a label":           {Action{Verb: Unlabel, Target: "milan"}, []string{"soak-b/*"}, nil},
		"another selector":  {Action{Verb: Offload, Target: "soak-a", Selector: "pool=extra"}, []string{"soak-a/*"}, nil},
		"a link that fails": {Action{Verb: CutLink, Target: "milan", Value: 30}, nil, nil},
		"a killed process":  {Action{Verb: KillProcess, Target: "milan", Object: "auth"}, nil, nil},
	} {
		if names, nodes := s.Deletes(test.action); !slices.Equal(names, test.names) || !slices.Equal(nodes, test.nodes) {
			t.Errorf("%s: %v and %v", name, names, nodes)
		}
	}
}

func TestChanges(t *testing.T) {
	s := Busy(4, Few).After(Action{Verb: Label, Target: "milan"}).After(Action{Verb: Offload, Target: "soak-a", Selector: "pool=extra"})
	for name, test := range map[string]struct {
		action       Action
		lost, gained []Change
	}{
		"a narrower selector": {Action{Verb: Offload, Target: "soak-b", Selector: "pool=extra"}, []Change{{"soak-b", "genoa"}, {"soak-b", "turin"}}, nil},
		"a wider one":         {Action{Verb: Offload, Target: "soak-a"}, nil, []Change{{"soak-a", "genoa"}, {"soak-a", "turin"}}},
		"another one": {
			Action{Verb: Offload, Target: "soak-d", Selector: "topology.liqo.io/region=south"},
			[]Change{{"soak-d", "milan"}, {"soak-d", "turin"}},
			[]Change{{"soak-d", "genoa"}},
		},
		"not offloaded": {Action{Verb: Unoffload, Target: "soak-a"}, []Change{{"soak-a", "milan"}}, nil},
		"a label":       {Action{Verb: Label, Target: "turin"}, nil, []Change{{"soak-a", "turin"}}},
		"no label":      {Action{Verb: Unlabel, Target: "milan"}, []Change{{"soak-a", "milan"}}, nil},
		"a drain":       {Action{Verb: Drain, Target: "milan"}, nil, nil},
		"an unpeering":  {Action{Verb: Unpeer, Target: "milan"}, nil, nil},
	} {
		if lost, gained := s.Changes(test.action); !slices.Equal(lost, test.lost) || !slices.Equal(gained, test.gained) {
			t.Errorf("%s: %v and %v", name, lost, gained)
		}
	}
}

func TestRebalance(t *testing.T) {
	if all := Busy(20, Many).Rebalance(); len(all) != 60 || all[0] != (Action{Verb: Restart, Target: "soak-a", Object: "deployment/api"}) {
		t.Errorf("%d actions: %v", len(all), all)
	}
}
