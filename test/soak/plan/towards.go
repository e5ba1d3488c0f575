// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Towards are the actions that lead from one state to another: the end of a fault first, then providers, then namespaces. Namespaces that are
// to go leave before their providers.
func Towards(from, to State) (all []Action) {
	do := func(a Action) {
		all = append(all, a)
		from = from.After(a)
	}
	if from.Fault.End != (Action{}) {
		do(from.Fault.End)
	}
	for _, name := range slices.Sorted(maps.Keys(from.Namespaces)) {
		if _, stays := to.Namespaces[name]; stays {
			continue
		}
		if from.Namespaces[name].Offloaded {
			do(Action{Verb: Unoffload, Target: name})
		}
		do(Action{Verb: DeleteNamespace, Target: name})
	}
	for _, name := range slices.Sorted(maps.Keys(to.Providers)) {
		towardsProvider(name, from.Providers[name], to.Providers[name], do)
	}
	for _, name := range slices.Sorted(maps.Keys(to.Namespaces)) {
		want := to.Namespaces[name]
		if _, exists := from.Namespaces[name]; !exists {
			do(Action{Verb: CreateNamespace, Target: name})
		}
		switch is := from.Namespaces[name]; {
		case want.Offloaded && (!is.Offloaded || is.Selector != want.Selector):
			do(Action{Verb: Offload, Target: name, Selector: want.Selector})
		case !want.Offloaded && is.Offloaded:
			do(Action{Verb: Unoffload, Target: name})
		}
		for _, object := range slices.Sorted(maps.Keys(from.Namespaces[name].Objects)) {
			if _, stays := want.Objects[object]; !stays {
				do(Action{Verb: Delete, Target: name, Object: object})
			}
		}
		// Small objects first: pods may need them.
		order := slices.SortedFunc(maps.Keys(want.Objects), func(a, b string) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
		})
		for _, object := range order {
			if value, has := from.Namespaces[name].Objects[object]; !has || value != want.Objects[object] {
				do(Action{Verb: Apply, Target: name, Object: object, Value: want.Objects[object]})
			}
		}
	}
	return all
}

func rank(object string) int {
	if slices.Contains(small, object) {
		return 0
	}
	return 1
}

func towardsProvider(name string, is, want Provider, do func(Action)) {
	for _, one := range []struct {
		is, want bool
		on, off  Verb
	}{
		{is.Peered, want.Peered, Peer, Unpeer},
		{is.Cordoned && want.Peered, want.Cordoned, Drain, Uncordon},
		{is.Labelled && want.Peered, want.Labelled, Label, Unlabel},
	} {
		switch {
		case one.want && !one.is:
			do(Action{Verb: one.on, Target: name})
		case !one.want && one.is:
			do(Action{Verb: one.off, Target: name})
		}
	}
}

// Rebalance replaces all pods, so that the scheduler spreads them over the providers as at the start.
func (s State) Rebalance() (all []Action) {
	for _, name := range slices.Sorted(maps.Keys(s.Namespaces)) {
		for _, object := range slices.Sorted(maps.Keys(s.Namespaces[name].Objects)) {
			if slices.Contains(workloads, object) {
				all = append(all, Action{Verb: Restart, Target: name, Object: object})
			}
		}
	}
	return all
}

// Deletes are the pods that may be deleted because of an action: patterns of NAMESPACE/NAME, and virtual nodes. All others must stay.
func (s State) Deletes(a Action) (names, nodes []string) {
	kind, name, _ := strings.Cut(a.Object, "/")
	switch a.Verb {
	case Offload, Unoffload, DeleteNamespace:
		return []string{a.Target + "/*"}, nil
	case Apply:
		if slices.Contains(workloads, a.Object) && a.Value < s.Namespaces[a.Target].Objects[a.Object] {
			return []string{a.Target + "/" + name + "-*"}, nil
		}
	case Restart, Delete:
		switch kind {
		case "pod":
			return []string{a.Target + "/" + name}, nil
		case "deployment", "statefulset", "job":
			return []string{a.Target + "/" + name + "-*"}, nil
		}
	case Unpeer:
		return nil, []string{"liqo-" + a.Target}
	case Drain:
		// kubectl evicts by name: it may evict the successor of a StatefulSet's pod, which has the same one, on another node.
		for _, namespace := range slices.Sorted(maps.Keys(s.Namespaces)) {
			if s.Namespaces[namespace].Objects["statefulset/db"] > 0 {
				names = append(names, namespace+"/db-*")
			}
		}
		return names, []string{"liqo-" + a.Target}
	case Label, Unlabel: // namespaces that choose by the label lose their pods on the node
		for _, namespace := range slices.Sorted(maps.Keys(s.Namespaces)) {
			if s.Namespaces[namespace].Selector == "pool=extra" {
				names = append(names, namespace+"/*")
			}
		}
		return names, nil
	}
	return nil, nil
}

// Change is a provider that a namespace loses or gains.
type Change struct{ Namespace, Provider string }

// Changes are the providers that namespaces lose and gain by an action, while the virtual nodes stay: what runs in a lost one ends, and a pod that is
// still there when the namespace gains the provider again may start again. With its virtual node, a pod is deleted.
func (s State) Changes(a Action) (lost, gained []Change) {
	switch a.Verb {
	case Offload, Unoffload, Label, Unlabel:
	default:
		return nil, nil
	}
	after := s.After(a)
	for _, namespace := range slices.Sorted(maps.Keys(s.Namespaces)) {
		before, now := s.Chosen(namespace), after.Chosen(namespace)
		for _, provider := range before {
			if !slices.Contains(now, provider) {
				lost = append(lost, Change{namespace, provider})
			}
		}
		for _, provider := range now {
			if !slices.Contains(before, provider) {
				gained = append(gained, Change{namespace, provider})
			}
		}
	}
	return lost, gained
}
