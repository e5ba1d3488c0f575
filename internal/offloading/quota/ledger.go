// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
)

// admittedFor is how long resources are reserved for an admitted pod that was not observed since: a later webhook may have refused it.
const admittedFor = time.Minute

// maxAmount bounds the request of one pod, and maxGrant the grant of one slice, so that what is compared fits into an int64.
const (
	maxAmount = 1 << 50
	maxGrant  = 1 << 60
)

// Amounts counts CPU in thousandths, and every other resource in its own unit.
type Amounts map[corev1.ResourceName]int64

// Ledger counts, per peer, the granted resources and what its pods request of them. It is not safe for concurrent use: a caller that
// serializes Admit never admits more than is granted.
type Ledger struct {
	// limits: pods need limits, and these count instead of the requests, which are lower.
	limits   bool
	defaults Defaults
	grants   map[string]map[types.NamespacedName]Amounts
	seen     map[types.NamespacedName]entry
	// admitted are pods that were admitted and not observed yet.
	admitted map[types.NamespacedName]entry
	used     map[string]sums
	// extra is the part of used that pods do not request.
	extra map[string]sums
}

type entry struct {
	peer    string
	uid     types.UID
	amounts Amounts
	extra   extra
	until   time.Time
	// unproven: the pod may have less than the amounts, which were never compared with the grant.
	unproven bool
}

// NewLedger returns an empty ledger. With limits, it counts the limits of pods and refuses pods without limits; otherwise it counts the requests.
// Either way, pods count with the defaults at least.
func NewLedger(limits bool, defaults Defaults) *Ledger {
	return &Ledger{
		limits: limits, defaults: defaults, grants: map[string]map[types.NamespacedName]Amounts{},
		seen: map[types.NamespacedName]entry{}, admitted: map[types.NamespacedName]entry{}, used: map[string]sums{}, extra: map[string]sums{},
	}
}

// SetGrant records what one slice grants to a peer; nil revokes it. The slices of a peer add up.
func (l *Ledger) SetGrant(peer string, slice types.NamespacedName, granted corev1.ResourceList) {
	if granted == nil {
		delete(l.grants[peer], slice)
		return
	}
	if l.grants[peer] == nil {
		l.grants[peer] = map[types.NamespacedName]Amounts{}
	}
	amounts := count(granted, maxGrant)
	for name := range granted {
		amounts[name] += 0 // granted, and nothing of it
	}
	l.grants[peer][slice] = amounts
}

// DropGrant removes a slice from all peers.
func (l *Ledger) DropGrant(slice types.NamespacedName) {
	for peer := range l.grants {
		delete(l.grants[peer], slice)
	}
}

// Set records an existing ShadowPod. A ShadowPod that has ended uses nothing. Lowering its resources does not lower its use, because its
// pod keeps those that it was created with.
func (l *Ledger) Set(peer string, shadow *vkv1alpha1.ShadowPod) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	before := l.seen[key]
	if counted, ok := l.admitted[key]; ok && (counted.uid == "" || counted.uid == shadow.UID) {
		l.take(l.admitted, key)
	}
	l.take(l.seen, key)
	if podphase.Final(shadow.Status.Phase) {
		return
	}
	now := l.measure(&shadow.Spec.Pod)
	if before.uid == shadow.UID {
		raise(now.amounts, before.amounts)
		for i := range now.extra {
			now.extra[i] = min(now.extra[i], before.extra[i])
		}
	}
	now.peer, now.uid = peer, shadow.UID
	l.put(l.seen, key, now)
}

// Has reports whether the ledger counts a ShadowPod.
func (l *Ledger) Has(shadow *vkv1alpha1.ShadowPod) bool {
	counted, ok := l.seen[types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}]
	return ok && counted.uid == shadow.UID
}

// Delete records that a ShadowPod is gone.
func (l *Ledger) Delete(shadow *vkv1alpha1.ShadowPod) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	if counted, ok := l.seen[key]; ok && counted.uid == shadow.UID {
		l.take(l.seen, key)
	}
}

// Admit returns why a new ShadowPod is refused. If it returns nothing, it reserves the resources of the ShadowPod, unless dryRun is set.
func (l *Ledger) Admit(peer string, shadow *vkv1alpha1.ShadowPod, now time.Time, dryRun bool) string {
	if l.limits {
		if problem := unlimited(&shadow.Spec.Pod); problem != "" {
			return problem
		}
	}
	for key := range l.admitted {
		if l.admitted[key].until.Before(now) {
			l.take(l.admitted, key)
		}
	}
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	use, granted := l.measure(&shadow.Spec.Pod), l.granted(peer)
	asked := use.asked(granted)
	replaced := []Amounts{l.seen[key].amounts, l.admitted[key].amounts} // the earlier holder of the name is gone before the name is used again
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		sum := l.used[peer][name]
		for _, before := range replaced {
			sum = sum.plus(-before[name])
		}
		used := sum.amount()
		// A resource that is not granted has no amount, like on the virtual node, where no scheduler puts such a pod.
		if most := granted[name]; asked[name] > most-used {
			return fmt.Sprintf("the %s of this pod ask for %s of %s%s; %s of %s granted to cluster %s are in use: wait for pods to end, lower the "+
				"%[1]s, or ask the provider for more",
				l.counted(), text(name, asked[name]), name, l.why(use, name), text(name, used), text(name, most), peer)
		}
	}
	if !dryRun {
		l.take(l.admitted, key)
		use.peer, use.uid, use.until = peer, shadow.UID, now.Add(admittedFor)
		l.put(l.admitted, key, use)
	}
	return ""
}

// SetUnproven is Set for a ShadowPod whose pod does not have its present state: an earlier process may have refused that.
func (l *Ledger) SetUnproven(peer string, shadow *vkv1alpha1.ShadowPod) {
	l.Set(peer, shadow)
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	if counted, ok := l.seen[key]; ok {
		counted.unproven = true
		l.seen[key] = counted
	}
}

// Prove records what the pod of a ShadowPod has, if that was not known. Without it, a peer whose pods take more than they request would get as much
// again after each restart: what they take beyond their requests does not count against pods that an earlier version may have admitted.
func (l *Ledger) Prove(shadow *vkv1alpha1.ShadowPod, pod *corev1.PodSpec) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	before, ok := l.seen[key]
	if !ok || before.uid != shadow.UID || !before.unproven {
		return
	}
	l.take(l.seen, key)
	now := l.measure(sized(&shadow.Spec.Pod, pod))
	now.peer, now.uid = before.peer, before.uid
	l.put(l.seen, key, now)
}

// Grow returns why a ShadowPod that is counted must not get the resources that it asks for now; nothing if it may. Only what grows is compared with the
// grant, which may have become smaller.
func (l *Ledger) Grow(peer string, shadow *vkv1alpha1.ShadowPod) string {
	if l.limits {
		if problem := unlimited(&shadow.Spec.Pod); problem != "" {
			return problem
		}
	}
	now, granted := l.measure(&shadow.Spec.Pod), l.granted(peer)
	counted := Amounts{}
	before := l.seen[types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}]
	if before.uid == shadow.UID {
		counted = before.asked(granted)
	}
	asked := now.asked(granted)
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		used := l.used[peer][name]
		if before.unproven { // it was admitted, maybe by a process that did not count what pods take beyond their requests
			used = used.without(l.extra[peer][name])
		}
		free := granted[name] - used.amount()
		if more := asked[name] - counted[name]; (more > 0 || before.unproven) && more > free {
			return fmt.Sprintf("the pod asks for %s of %s%s in place of %s, and %s of %s granted to cluster %s are in use: wait for pods to end, ask "+
				"for less, or ask the provider for more",
				text(name, asked[name]), name, l.why(now, name), text(name, counted[name]), text(name, l.used[peer][name].amount()), text(name, granted[name]), peer)
		}
	}
	return ""
}

// measure returns what counts of a pod.
func (l *Ledger) measure(spec *corev1.PodSpec) (measured entry) {
	stated := requests(spec)
	if l.limits {
		raise(stated, limits(spec))
	}
	measured.amounts = l.defaults.amounts(spec)
	raise(measured.amounts, stated)
	for i, name := range defaulted {
		measured.extra[i] = measured.amounts[name] - stated[name]
	}
	return measured
}

// asked returns what is compared with a grant. Of a resource that the grant does not name, a pod asks for what it requests: nodes that do not
// count a resource grant none of it.
func (e entry) asked(granted Amounts) Amounts {
	asked := maps.Clone(e.amounts)
	for i, name := range defaulted {
		if _, named := granted[name]; !named {
			if asked[name] -= e.extra[i]; asked[name] == 0 {
				delete(asked, name)
			}
		}
	}
	return asked
}

// why returns why a pod takes more of a resource than it requests; nothing if it does not.
func (l *Ledger) why(counted entry, name corev1.ResourceName) string {
	if counted.extra.of(name) == 0 {
		return ""
	}
	return l.defaults.why(name)
}

func (l *Ledger) counted() string {
	if l.limits {
		return "limits"
	}
	return "requests"
}

func (l *Ledger) granted(peer string) Amounts {
	sum := Amounts{}
	for _, grant := range l.grants[peer] {
		for name, value := range grant {
			sum[name] = min(sum[name], math.MaxInt64-value) + value
		}
	}
	return sum
}

func (l *Ledger) put(in map[types.NamespacedName]entry, key types.NamespacedName, counted entry) {
	in[key] = counted
	l.add(counted, 1)
}

func (l *Ledger) take(from map[types.NamespacedName]entry, key types.NamespacedName) {
	if counted, ok := from[key]; ok {
		delete(from, key)
		l.add(counted, -1)
	}
}

func (l *Ledger) add(counted entry, sign int64) {
	for name, value := range counted.amounts {
		add(l.used, counted.peer, name, sign*value)
	}
	for i, name := range defaulted {
		add(l.extra, counted.peer, name, sign*counted.extra[i])
	}
}
