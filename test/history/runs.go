// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// again is the exit code by which a container of these tests says that it wants to be started again.
const again = 3

// run is one life of a container there.
type run struct {
	id, pod, name string
	node, policy  string
	// began and until are the earliest and the latest moment at which it is known to have been alive. What a kubelet says is exact to the
	// second, what the machine says to a hundredth.
	began, until time.Time
	// ended: it is known how.
	ended *End
	exact bool // began and until are the machine's word
}

// runs are all lives of containers for each pod here, in the order in which they began.
type runs map[string][]*run

func collect(facts []Fact) runs {
	byID := map[string]*run{}
	whose := map[string]string{}
	at := func(id, pod, owner string) *run {
		_, id, cut := strings.Cut(id, "://")
		if !cut || id == "" {
			return nil
		}
		known := byID[id]
		if known == nil {
			known = &run{id: id, pod: pod}
			byID[id], whose[id] = known, owner
		}
		return known
	}
	ended := func(pod *Pod, name string, end *End) {
		if end == nil {
			return
		}
		if r := at(end.ID, pod.UID, pod.For); r != nil {
			r.name, r.node, r.policy, r.ended = name, cmp.Or(pod.Node, r.node), pod.Policy, end
			r.alive(end.Began, end.Ended, false)
		}
	}
	for _, f := range facts {
		switch {
		case f.Process != nil:
			r := at("machine://"+f.Process.Container, f.Process.PodUID, f.Process.For)
			if r != nil {
				r.alive(f.Process.Began, f.Process.Until, true)
			}
		case f.Pod != nil && f.Pod.Kind == "Pod" && f.Cluster == there && f.Pod.For != "":
			for _, c := range f.Pod.Containers {
				if r := at(c.ID, f.Pod.UID, f.Pod.For); r != nil && c.Running != nil {
					r.name, r.node, r.policy = c.Name, cmp.Or(f.Pod.Node, r.node), f.Pod.Policy
					until := *c.Running
					// Who is not Ready may have been lost with its node: then this is an old word.
					if f.Pod.Ready && !f.Gone {
						until = f.At
					}
					r.alive(*c.Running, until, false)
				}
				ended(f.Pod, c.Name, c.Ended)
				ended(f.Pod, c.Name, c.Before)
			}
		}
	}
	all := runs{}
	for id, r := range byID {
		if !r.began.IsZero() {
			all[whose[id]] = append(all[whose[id]], r)
		}
	}
	for _, list := range all {
		complete(list)
		slices.SortFunc(list, func(a, b *run) int { return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.id, b.id)) })
	}
	return all
}

// complete gives lives that only the machine has seen what those of the same pod have: they have one container each.
func complete(list []*run) {
	for _, r := range list {
		for _, other := range list {
			if r.name == "" {
				r.name = other.name
			}
			if r.pod == other.pod {
				r.node, r.policy = cmp.Or(r.node, other.node), cmp.Or(r.policy, other.policy)
			}
		}
	}
}

// alive widens what is known, unless it is known better.
func (r *run) alive(began, until time.Time, exact bool) {
	if began.IsZero() || r.exact && !exact {
		return
	}
	if exact && !r.exact {
		r.began, r.until, r.exact = began, until, true
		return
	}
	if r.began.IsZero() || began.Before(r.began) {
		r.began = began
	}
	// That it has ended is known better than that it was once thought to run.
	if r.ended != nil && !r.exact {
		r.until = r.ended.Ended
	} else if until.After(r.until) {
		r.until = until
	}
}

// overlaps says whether two lives are proven to have been at the same time.
func overlaps(a, b *run) bool {
	from := a.began
	if b.began.After(from) {
		from = b.began
	}
	until := a.until
	if b.until.Before(until) {
		until = b.until
	}
	slack := time.Second // times that are cut to seconds
	if a.exact && b.exact {
		slack = 20 * time.Millisecond
	}
	return until.Sub(from) >= slack
}
