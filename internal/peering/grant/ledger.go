// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/nodeready"
)

// Ledger counts what the nodes have and what the pods on them request, event by event. It is not safe for concurrent
// use.
type Ledger struct {
	tolerated func(key string) bool
	nodes     map[string]machine
	pods      map[types.NamespacedName]occupant
	used      map[owner]Amounts
}

// machine is what the ledger stores of a node.
type machine struct {
	admits       bool // pods of peers may start there, unless it is cordoned or not Ready
	counts       bool // its resources are granted
	virtual      bool
	allocatable  Amounts
	architecture string
	system       string
}

// occupant is a pod that uses resources of a node.
type occupant struct {
	owner
	// A slice, because there may be ten thousand of them and a map is four times its size.
	requests []request
}

type request struct {
	name  corev1.ResourceName
	value int64
}

// owner is a node and the cluster ID of the peer whose pods use it; the origin is empty for our own pods.
type owner struct{ node, origin string }

// NewLedger returns an empty ledger. tolerated reports whether pods of peers may tolerate
// taints with a key; nil means none.
func NewLedger(tolerated func(key string) bool) *Ledger {
	if tolerated == nil {
		tolerated = func(string) bool { return false }
	}
	return &Ledger{tolerated: tolerated, nodes: map[string]machine{}, pods: map[types.NamespacedName]occupant{}, used: map[owner]Amounts{}}
}

// SetNode records the current state of a node, and reports whether the capacity may have changed.
//
// A node counts if it is Ready, physical, not cordoned, and has no taint that pods of peers may not tolerate, such as that of a control plane: no pod of a
// peer can start on another node, so its resources must not be granted. Taints that state a node's condition, such as memory pressure, come and go by the
// minute, and do not matter.
func (l *Ledger) SetNode(node *corev1.Node) (changed bool) {
	before, ok := l.nodes[node.Name]
	now := machine{
		admits: l.admits(node), counts: l.counts(node),
		virtual:      node.Labels[labels.Type] == labels.TypeVirtualNode,
		architecture: cmp.Or(node.Labels[corev1.LabelArchStable], node.Status.NodeInfo.Architecture),
		system:       cmp.Or(node.Labels[corev1.LabelOSStable], node.Status.NodeInfo.OperatingSystem),
	}
	if now.counts {
		now.allocatable = Count(node.Status.Allocatable)
	}
	if ok && before.counts == now.counts && before.admits == now.admits && before.virtual == now.virtual && before.architecture == now.architecture &&
		before.system == now.system && maps.Equal(before.allocatable, now.allocatable) {
		return false
	}
	l.nodes[node.Name] = now
	return !now.virtual || ok && !before.virtual
}

func (l *Ledger) counts(node *corev1.Node) bool {
	return l.admits(node) && !node.Spec.Unschedulable && nodeready.Is(node.Status.Conditions)
}

// admits reports whether pods of peers may start on a node while it is Ready and not cordoned.
func (l *Ledger) admits(node *corev1.Node) bool {
	if node.Labels[labels.Type] == labels.TypeVirtualNode || node.DeletionTimestamp != nil {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, conditionTaints) && !l.tolerated(taint.Key) {
			return false
		}
	}
	return true
}

// conditionTaints is the domain of the taints that state a node's condition.
const conditionTaints = "node.kubernetes.io/"

// DeleteNode removes a node, and reports whether the capacity may have changed.
func (l *Ledger) DeleteNode(name string) (changed bool) {
	node, ok := l.nodes[name]
	changed = ok && !node.virtual
	delete(l.nodes, name)
	return changed
}

// SetPod records the node and the requests of a pod, and reports whether the capacity may have changed. A pod uses
// resources from its binding to a node until it has finished.
func (l *Ledger) SetPod(pod *corev1.Pod) (changed bool) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName == "" || finished(pod) {
		return l.remove(key)
	}
	now := occupant{owner: owner{node: pod.Spec.NodeName, origin: pod.Labels[labels.Origin]}, requests: podAmounts(pod)}
	before, ok := l.pods[key]
	if ok && before.owner == now.owner && slices.Equal(before.requests, now.requests) {
		return false
	}
	if ok {
		l.remove(key)
	}
	l.pods[key] = now
	used := l.used[now.owner]
	if used == nil {
		used = Amounts{}
		l.used[now.owner] = used
	}
	for _, r := range now.requests {
		used[r.name] += r.value
	}
	return true
}

// bound is the most that is counted for one pod, a pebibyte for example: more is a mistake or an attack. With it the sum
// over all pods of a node cannot overflow, so subtracting a pod is exact.
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

// DeletePod removes a pod, and reports whether the capacity may have changed.
func (l *Ledger) DeletePod(namespace, name string) (changed bool) {
	return l.remove(types.NamespacedName{Namespace: namespace, Name: name})
}

func (l *Ledger) remove(key types.NamespacedName) (changed bool) {
	before, ok := l.pods[key]
	if !ok {
		return false
	}
	delete(l.pods, key)
	used := l.used[before.owner]
	for _, r := range before.requests {
		if used[r.name] -= r.value; used[r.name] == 0 {
			delete(used, r.name)
		}
	}
	if len(used) == 0 {
		delete(l.used, before.owner)
	}
	return true
}

// Capacity is the sum over all nodes that count, and who uses it. It is immutable.
type Capacity struct {
	Allocatable Amounts
	// Nodes is how many nodes count: on others, no further pod of a peer can start.
	Nodes int
	// Used is by the cluster ID of the peer; that of our own pods is the empty string.
	Used map[string]Amounts
	// Held is what the pods of each peer use on nodes that do not count, such as cordoned ones: they stay there until something else ends them.
	Held map[string]Amounts
	// Architectures and OperatingSystems of the nodes that count, the most frequent first. If none counts, of the others: their pods have not moved.
	// Then come architectures that only nodes have which are cordoned or not Ready: pods wait for them.
	Architectures, OperatingSystems []string
}

// Capacity sums the ledger up.
func (l *Ledger) Capacity() Capacity {
	total := Capacity{Allocatable: Amounts{}, Used: map[string]Amounts{}, Held: map[string]Amounts{}}
	architectures, systems, away := map[string]int{}, map[string]int{}, map[string]int{}
	for _, node := range l.nodes {
		if node.counts {
			total.Nodes++
			total.Allocatable.add(node.allocatable)
		}
	}
	for _, node := range l.nodes {
		if node.counts || total.Nodes == 0 && !node.virtual {
			architectures[node.architecture]++
			systems[node.system]++
		} else if node.admits {
			away[node.architecture]++
		}
	}
	for owner, used := range l.used {
		into := total.Used
		if node, ok := l.nodes[owner.node]; !ok || !node.counts && (owner.origin == "" || node.virtual) {
			continue
		} else if !node.counts {
			into = total.Held
		}
		if into[owner.origin] == nil {
			into[owner.origin] = Amounts{}
		}
		into[owner.origin].add(used)
	}
	// A resource of which no node has any, for example huge pages, is not shared.
	maps.DeleteFunc(total.Allocatable, func(_ corev1.ResourceName, value int64) bool { return value == 0 })
	maps.DeleteFunc(away, func(name string, _ int) bool { return architectures[name] > 0 })
	total.Architectures, total.OperatingSystems = append(frequent(architectures), frequent(away)...), frequent(systems)
	return total
}

// frequent returns the names, most frequent first, then by name.
func frequent(counted map[string]int) []string {
	delete(counted, "")
	return slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(cmp.Compare(counted[b], counted[a]), cmp.Compare(a, b))
	})
}

// Grant is what a peer gets: the given percentage of what is free for it, and what its pods use on nodes that take no further ones. Without that part, the
// cordon of one node would take resources of the others away, and a pod that is evicted from it could not start on another.
func (c Capacity) Grant(peer string, percentage int) corev1.ResourceList {
	granted := Share(c.Free(peer), percentage)
	if peer == "" {
		return granted
	}
	for name, held := range c.Held[peer] {
		if Shared(name) {
			granted[name] = quantity(name, plus(amount(name, granted[name]), held))
		}
	}
	return granted
}

// Free is what a peer gets a share of: everything that others do not use. The peer's own use counts as free, because the
// capacity of its virtual node includes it.
func (c Capacity) Free(peer string) Amounts {
	free := maps.Clone(c.Allocatable)
	for origin, used := range c.Used {
		if origin != peer || peer == "" {
			for name, value := range used {
				if left, found := free[name]; found {
					free[name] = max(left-value, 0)
				}
			}
		}
	}
	return free
}
