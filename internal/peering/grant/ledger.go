// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
)

// Origin is on each pod that a peer runs here: the cluster ID of the peer.
const Origin = "virtualkubelet.liqo.io/origin"

// Ledger keeps count of what the nodes have and what the pods on them ask for, event by event. It is not safe for
// concurrent use.
type Ledger struct {
	nodes map[string]machine
	pods  map[types.NamespacedName]occupant
	used  map[place]Amounts
}

// machine is a node as far as it counts.
type machine struct {
	counts       bool
	allocatable  Amounts
	architecture string
	system       string
}

// occupant is a pod that holds resources of a node.
type occupant struct {
	place
	// A slice, because there may be ten thousand of them and a map is four times its size.
	requests []request
}

type request struct {
	name  corev1.ResourceName
	value int64
}

// place is a node and for whom it is used: the cluster ID of a peer, or nobody's but our own.
type place struct{ node, origin string }

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{nodes: map[string]machine{}, pods: map[types.NamespacedName]occupant{}, used: map[place]Amounts{}}
}

// SetNode notes what a node is now, and says whether that is news.
//
// A node counts if it is Ready, physical and not cordoned: nothing can be started on a cordoned one, so offering it
// would promise what no scheduler keeps. Taints are not looked at; pods may tolerate them.
func (l *Ledger) SetNode(node *corev1.Node) (changed bool) {
	before, known := l.nodes[node.Name]
	now := machine{
		counts:       counts(node),
		architecture: cmp.Or(node.Labels[corev1.LabelArchStable], node.Status.NodeInfo.Architecture),
		system:       cmp.Or(node.Labels[corev1.LabelOSStable], node.Status.NodeInfo.OperatingSystem),
	}
	if now.counts {
		now.allocatable = Count(node.Status.Allocatable)
	}
	if known && before.counts == now.counts && before.architecture == now.architecture &&
		before.system == now.system && maps.Equal(before.allocatable, now.allocatable) {
		return false
	}
	l.nodes[node.Name] = now
	return before.counts || now.counts
}

func counts(node *corev1.Node) bool {
	if node.Labels[labels.Type] == labels.TypeVirtualNode || node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// DeleteNode forgets a node, and says whether that is news.
func (l *Ledger) DeleteNode(name string) (changed bool) {
	changed = l.nodes[name].counts
	delete(l.nodes, name)
	return changed
}

// SetPod notes where a pod is and what it asks for, and says whether that is news. It holds something from the
// moment it is bound to a node until it has finished.
func (l *Ledger) SetPod(pod *corev1.Pod) (changed bool) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName == "" || finished(pod) {
		return l.remove(key)
	}
	now := occupant{place: place{node: pod.Spec.NodeName, origin: pod.Labels[Origin]}, requests: podAmounts(pod)}
	before, known := l.pods[key]
	if known && before.place == now.place && slices.Equal(before.requests, now.requests) {
		return false
	}
	if known {
		l.remove(key)
	}
	l.pods[key] = now
	used := l.used[now.place]
	if used == nil {
		used = Amounts{}
		l.used[now.place] = used
	}
	for _, r := range now.requests {
		used[r.name] += r.value
	}
	return true
}

// bound is as much as one pod can ask for (a pebibyte, say): more is a mistake or a trick. The sum over all pods of
// one node then fits, so taking one away again leaves the right number.
const bound = 1 << 50

func podAmounts(pod *corev1.Pod) []request {
	amounts := Count(requests(pod))
	amounts[corev1.ResourcePods] = 1
	list := make([]request, 0, len(amounts))
	for name, value := range amounts {
		if value > 0 {
			list = append(list, request{name, min(value, bound)})
		}
	}
	slices.SortFunc(list, func(a, b request) int { return cmp.Compare(a.name, b.name) })
	return list
}

// DeletePod forgets a pod, and says whether that is news.
func (l *Ledger) DeletePod(namespace, name string) (changed bool) {
	return l.remove(types.NamespacedName{Namespace: namespace, Name: name})
}

func (l *Ledger) remove(key types.NamespacedName) (changed bool) {
	before, known := l.pods[key]
	if !known {
		return false
	}
	delete(l.pods, key)
	used := l.used[before.place]
	for _, r := range before.requests {
		if used[r.name] -= r.value; used[r.name] == 0 {
			delete(used, r.name)
		}
	}
	if len(used) == 0 {
		delete(l.used, before.place)
	}
	return true
}

// Capacity is what all nodes that count have together, and for whom it is used. It is a value: nothing changes it.
type Capacity struct {
	Allocatable Amounts
	// Used, by the cluster ID of the peer; our own pods are under the empty string.
	Used map[string]Amounts
	// Architectures and OperatingSystems of the nodes, the most frequent first.
	Architectures, OperatingSystems []string
}

// Capacity sums the ledger up. Pods on nodes that do not count take nothing away, since their node gives nothing.
func (l *Ledger) Capacity() Capacity {
	total := Capacity{Allocatable: Amounts{}, Used: map[string]Amounts{}}
	architectures, systems := map[string]int{}, map[string]int{}
	for _, node := range l.nodes {
		if node.counts {
			total.Allocatable.add(node.allocatable)
			architectures[node.architecture]++
			systems[node.system]++
		}
	}
	for place, used := range l.used {
		if !l.nodes[place.node].counts {
			continue
		}
		if total.Used[place.origin] == nil {
			total.Used[place.origin] = Amounts{}
		}
		total.Used[place.origin].add(used)
	}
	// A node that has none of a resource, like most have no huge pages, does not make it one that is shared.
	maps.DeleteFunc(total.Allocatable, func(_ corev1.ResourceName, value int64) bool { return value == 0 })
	total.Architectures, total.OperatingSystems = frequent(architectures), frequent(systems)
	return total
}

// frequent returns the names, most frequent first, then by name.
func frequent(counted map[string]int) []string {
	delete(counted, "")
	return slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(cmp.Compare(counted[b], counted[a]), cmp.Compare(a, b))
	})
}

// Free is what a peer may have a share of: all that is not used by anybody else. What it uses itself counts as
// free, because its virtual node has to carry that, too.
func (c Capacity) Free(peer string) Amounts {
	free := maps.Clone(c.Allocatable)
	for origin, used := range c.Used {
		if origin != peer || peer == "" {
			for name, value := range used {
				if left, there := free[name]; there {
					free[name] = max(left-value, 0)
				}
			}
		}
	}
	return free
}
