// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verb is what an action does.
type Verb string

// The actions of users.
const (
	CreateNamespace Verb = "create namespace"
	DeleteNamespace Verb = "delete namespace"
	Offload         Verb = "offload"   // also with another selector than before
	Unoffload       Verb = "unoffload" // its pods then run in the consumer
	Apply           Verb = "apply"     // an object, new or with another value
	Restart         Verb = "restart"   // the pods of a workload, one after the other
	Delete          Verb = "delete"    // an object, or a pod that is made again
	Peer            Verb = "peer"
	Unpeer          Verb = "unpeer"
	Drain           Verb = "drain"
	Uncordon        Verb = "uncordon"
	Label           Verb = "label" // the virtual node, which a selector names
	Unlabel         Verb = "unlabel"
)

// The faults. Those of the first group are over at once; each of the others lasts until its end.
const (
	KillProcess   Verb = "kill process"   // of Liqo
	KillComponent Verb = "kill component" // of Kubernetes

	CutLink        Verb = "cut link" // between the consumer and a provider
	HealLink       Verb = "heal link"
	StopComponent  Verb = "stop component"
	StartComponent Verb = "start component"
	StopNode       Verb = "stop node"
	StartNode      Verb = "start node"
)

// Action is one thing that a user does, or that fails.
type Action struct {
	Verb     Verb
	Target   string // namespace or cluster
	Object   string // KIND/NAME, or the name of a process, component or node
	Value    int    // of the object
	Selector string
}

func (a Action) String() string {
	text := string(a.Verb) + " " + a.Target
	if a.Object != "" {
		text += " " + a.Object
	}
	if a.Verb == Apply {
		text += fmt.Sprintf("=%d", a.Value)
	}
	if a.Selector != "" {
		text += " -l " + a.Selector
	}
	return text
}

// IsFault returns true if the action belongs to a fault.
func (a Action) IsFault() bool {
	switch a.Verb {
	case KillProcess, KillComponent, CutLink, HealLink, StopComponent, StartComponent, StopNode, StartNode:
		return true
	}
	return false
}

// ends are the ends of the faults that last.
var ends = map[Verb]Verb{CutLink: HealLink, StopComponent: StartComponent, StopNode: StartNode}

// Lasts returns true if a fault starts that lasts, and Ends if such a fault ends.
func (a Action) Lasts() bool { return ends[a.Verb] != "" }

// Ends returns true if a fault that lasts ends.
func (a Action) Ends() bool {
	return a.Verb == HealLink || a.Verb == StartComponent || a.Verb == StartNode
}

// After is the state that the action asks for.
func (s State) After(a Action) State {
	s = s.clone()
	s.Actions++
	if s.Fault.Left--; s.Fault.Left < 0 {
		s.Fault.Left = 0
	}
	n, p := s.Namespaces[a.Target], s.Providers[a.Target]
	n.Objects = maps.Clone(n.Objects)
	switch a.Verb {
	case CreateNamespace:
		n.Objects = map[string]int{}
	case Offload:
		n.Offloaded, n.Selector = true, a.Selector
	case Unoffload:
		n.Offloaded, n.Selector = false, ""
	case Apply:
		n.Objects[a.Object] = a.Value
	case Delete:
		delete(n.Objects, a.Object)
	case DeleteNamespace:
		delete(s.Namespaces, a.Target)
		return s
	case Peer, Unpeer:
		p = Provider{Peered: a.Verb == Peer} // a new virtual node
	case Drain, Uncordon:
		p.Cordoned = a.Verb == Drain
	case Label, Unlabel:
		p.Labelled = a.Verb == Label
	case CutLink, StopComponent, StopNode:
		s.Fault = Fault{End: Action{Verb: ends[a.Verb], Target: a.Target, Object: a.Object}, Left: a.Value}
		return s
	case HealLink, StartComponent, StartNode:
		s.Fault = Fault{}
		return s
	default:
		return s
	}
	if _, is := s.Providers[a.Target]; is {
		s.Providers[a.Target] = p
	} else {
		s.Namespaces[a.Target] = n
	}
	return s
}

// Allowed returns true if a user could do this now, or if it can fail now. At most one provider is unpeered and at most one drained, so that
// pods have a place; at most one fault lasts at a time, so that each difference in the history belongs to one.
func (s State) Allowed(a Action) bool {
	count := func(is func(Provider) bool) (n int) {
		for _, p := range s.Providers {
			if is(p) {
				n++
			}
		}
		return n
	}
	n, exists := s.Namespaces[a.Target]
	p := s.Providers[a.Target]
	kind, _, _ := strings.Cut(a.Object, "/")
	switch a.Verb {
	case CreateNamespace:
		return !exists
	case Offload:
		return exists && (!n.Offloaded || n.Selector != a.Selector)
	case Unoffload, DeleteNamespace:
		return exists && n.Offloaded == (a.Verb == Unoffload)
	case Apply:
		more := map[string]int{"deployment": a.Value, "statefulset": a.Value, "job": a.Value}[kind]
		old, has := n.Objects[a.Object]
		return exists && !(kind == "job" && has) && old != a.Value && (more <= old || s.Most == 0 || s.Pods()+more-old <= s.Most)
	case Restart:
		return n.Objects[a.Object] > 0
	case Delete:
		_, has := n.Objects[a.Object]
		return has || kind == "pod" && n.Objects["statefulset/db"] > 0
	case Peer:
		return !p.Peered
	case Unpeer:
		return p.Peered && count(func(p Provider) bool { return !p.Peered }) == 0
	case Drain:
		return p.Peered && !p.Cordoned && count(func(p Provider) bool { return p.Cordoned }) == 0
	case Uncordon:
		return p.Cordoned
	case Label, Unlabel:
		return p.Peered && p.Labelled == (a.Verb == Unlabel)
	case HealLink, StartComponent, StartNode:
		return s.Fault.End == a
	case CutLink:
		return s.Fault.End == (Action{}) && p.Peered
	}
	return s.Fault.End == (Action{})
}

// Source is where random numbers come from.
type Source interface {
	// IntN returns a number from 0 to n-1.
	IntN(n int) int
}

// Plan chooses the next action, which is allowed.
func Plan(r Source, s State) Action {
	if s.Fault.End != (Action{}) && s.Fault.Left == 0 {
		return s.Fault.End
	}
	for {
		if a := draw(r, s); s.Allowed(a) {
			return a
		}
	}
}

// shares are how often each action is drawn; what is not allowed is drawn again.
var shares = []struct {
	share int
	draw  func(Source, State) Action
}{
	{20, scale},
	{6, func(r Source, s State) Action { // the whole workload goes, and comes back by scale
		return Action{Verb: Delete, Target: namespace(r, s), Object: pick(r, workloads)}
	}},
	{5, func(r Source, s State) Action {
		return Action{Verb: Restart, Target: namespace(r, s), Object: pick(r, workloads)}
	}},
	{5, func(r Source, s State) Action {
		return Action{Verb: Delete, Target: namespace(r, s), Object: "pod/db-0"}
	}},
	{8, func(r Source, s State) Action {
		return Action{Verb: Apply, Target: namespace(r, s), Object: fmt.Sprint("job/batch-", s.Actions), Value: 1 + r.IntN(4)}
	}},
	{6, func(r Source, s State) Action { return existing(r, s, "job") }},
	{10, func(r Source, s State) Action {
		return Action{Verb: Apply, Target: namespace(r, s), Object: pick(r, small), Value: 1 + s.Actions}
	}},
	{5, func(r Source, s State) Action {
		return Action{Verb: Delete, Target: namespace(r, s), Object: pick(r, small)}
	}},
	{8, func(r Source, s State) Action {
		return Action{Verb: Offload, Target: namespace(r, s), Selector: pick(r, selectors)}
	}},
	{4, func(r Source, s State) Action { return Action{Verb: Unoffload, Target: namespace(r, s)} }},
	{2, func(r Source, s State) Action { return Action{Verb: Drain, Target: provider(r, s)} }},
	{3, func(r Source, s State) Action { return Action{Verb: Uncordon, Target: provider(r, s)} }},
	{2, func(r Source, s State) Action { return Action{Verb: Label, Target: provider(r, s)} }},
	{1, func(r Source, s State) Action { return Action{Verb: Unlabel, Target: provider(r, s)} }},
	{1, func(r Source, s State) Action { return Action{Verb: Unpeer, Target: provider(r, s)} }},
	{4, func(r Source, s State) Action { return Action{Verb: Peer, Target: provider(r, s)} }},
	{7, fault},
}

func draw(r Source, s State) Action {
	sum := 0
	for _, one := range shares {
		sum += one.share
	}
	at := r.IntN(sum)
	for _, one := range shares {
		if at -= one.share; at < 0 {
			return one.draw(r, s)
		}
	}
	panic("the shares have another sum than before")
}

var (
	workloads = []string{"deployment/web", "deployment/api", "deployment/extra", "statefulset/db"}
	small     = []string{"service/web", "service/db", "service/extra", "configmap/settings", "configmap/rules", "configmap/extra"}
	// processes are Liqo's components that run in each cluster; the virtual kubelet runs in the consumer.
	processes  = []string{"controller-manager", "auth", "gateway", "route", "metric-agent", "virtual-kubelet"}
	components = []string{"kube-apiserver", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}
)

func pick[T any](r Source, from []T) T { return from[r.IntN(len(from))] }

func namespace(r Source, s State) string { return pick(r, slices.Sorted(maps.Keys(s.Namespaces))) }

func provider(r Source, s State) string { return pick(r, slices.Sorted(maps.Keys(s.Providers))) }

func scale(r Source, s State) Action {
	object := pick(r, workloads)
	most := 12
	if object == "statefulset/db" {
		most = 4
	}
	return Action{Verb: Apply, Target: namespace(r, s), Object: object, Value: 1 + r.IntN(most)}
}

// existing deletes an object of a kind; without one in the namespace, the action is not allowed.
func existing(r Source, s State, kind string) Action {
	a := Action{Verb: Delete, Target: namespace(r, s)}
	var all []string
	for _, object := range slices.Sorted(maps.Keys(s.Namespaces[a.Target].Objects)) {
		if strings.HasPrefix(object, kind+"/") {
			all = append(all, object)
		}
	}
	if len(all) > 0 {
		a.Object = pick(r, all)
	}
	return a
}

// Longest is the number of actions for which a fault lasts at most, and shortest at least.
const Longest, shortest = 40, 10

// fault draws one.
func fault(r Source, s State) Action {
	cluster, last := pick(r, append([]string{Consumer}, slices.Sorted(maps.Keys(s.Providers))...)), shortest+r.IntN(Longest-shortest+1)
	switch r.IntN(8) {
	case 0, 1, 2:
		process := pick(r, processes)
		if process == "virtual-kubelet" {
			cluster = Consumer
		}
		return Action{Verb: KillProcess, Target: cluster, Object: process}
	case 3, 4:
		return Action{Verb: KillComponent, Target: cluster, Object: pick(r, components)}
	case 5:
		return Action{Verb: CutLink, Target: provider(r, s), Value: last}
	case 6:
		return Action{Verb: StopComponent, Target: provider(r, s), Object: "kube-apiserver", Value: last}
	}
	return Action{Verb: StopNode, Target: "milan", Object: "milan-worker", Value: last}
}
