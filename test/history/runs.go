// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// restartCode is the exit code with which a container of these tests requests a restart.
const restartCode = 3

// run is one run of a container in the provider, from its start to its end.
type run struct {
	id, pod, name string
	node, policy  string
	// start and until are the earliest and the latest moment at which it is known to have been alive: exact to the second if a kubelet
	// reported them, to a hundredth if they come from /proc.
	start, until time.Time
	ended        *End // nil if it is not known how it ended
	exact        bool // start and until come from /proc
}

// runs are all runs of containers by the UID of the consumer's pod, in the order of their start.
type runs map[string][]*run

func collect(facts []Fact) runs {
	byID := map[string]*run{}
	podOf := map[string]string{} // UID of the consumer's pod by container
	at := func(id, pod, consumerPod string) *run {
		_, id, cut := strings.Cut(id, "://")
		if !cut || id == "" {
			return nil
		}
		known := byID[id]
		if known == nil {
			known = &run{id: id, pod: pod}
			byID[id], podOf[id] = known, consumerPod
		}
		return known
	}
	ended := func(pod *Pod, name string, end *End) {
		if end == nil {
			return
		}
		if r := at(end.ID, pod.UID, pod.For); r != nil {
			r.name, r.node, r.policy, r.ended = name, cmp.Or(pod.Node, r.node), pod.Policy, end
			r.alive(end.Started, end.Ended, false)
		}
	}
	for _, f := range facts {
		switch {
		case f.Process != nil:
			r := at("machine://"+f.Process.Container, f.Process.PodUID, f.Process.For)
			if r != nil {
				r.alive(f.Process.Started, f.Process.Until, true)
			}
		case f.Pod != nil && f.Pod.Kind == "Pod" && f.Cluster == provider && f.Pod.For != "":
			for _, c := range f.Pod.Containers {
				if r := at(c.ID, f.Pod.UID, f.Pod.For); r != nil && c.Running != nil {
					r.name, r.node, r.policy = c.Name, cmp.Or(f.Pod.Node, r.node), f.Pod.Policy
					until := *c.Running
					// A pod that is not Ready may have been lost with its node: then this status is old.
					if f.Pod.Ready && !f.Gone {
						until = f.At
					}
					r.alive(*c.Running, until, false)
				}
				ended(f.Pod, c.Name, c.Ended)
				ended(f.Pod, c.Name, c.Previous)
			}
		}
	}
	all := runs{}
	for id, r := range byID {
		if !r.start.IsZero() {
			all[podOf[id]] = append(all[podOf[id]], r)
		}
	}
	for _, list := range all {
		complete(list)
		slices.SortFunc(list, func(a, b *run) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.id, b.id)) })
	}
	return all
}

// complete copies name, node and policy to runs that only /proc has shown, from other runs of the same pod: each pod has one container.
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

// alive extends the known time of the run, unless a more exact source has given it.
func (r *run) alive(start, until time.Time, exact bool) {
	if start.IsZero() || r.exact && !exact {
		return
	}
	if exact && !r.exact {
		r.start, r.until, r.exact = start, until, true
		return
	}
	if r.start.IsZero() || start.Before(r.start) {
		r.start = start
	}
	// The reported end is more reliable than an earlier status that showed it running.
	if r.ended != nil && !r.exact {
		r.until = r.ended.Ended
	} else if until.After(r.until) {
		r.until = until
	}
}

// overlaps returns true if both runs are proven to have been alive at the same time.
func overlaps(a, b *run) bool {
	from := a.start
	if b.start.After(from) {
		from = b.start
	}
	until := a.until
	if b.until.Before(until) {
		until = b.until
	}
	slack := time.Second // kubelets cut times to seconds
	if a.exact && b.exact {
		slack = 20 * time.Millisecond
	}
	return until.Sub(from) >= slack
}
