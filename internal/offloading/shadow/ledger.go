// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// admittedFor is how long room is kept for a pod that was let in and has not been seen since: somebody after us may have refused it.
const admittedFor = time.Minute

// bound is as much as one pod can ask for; sums of it fit into the numbers we count with.
const bound = 1 << 50

// Amounts counts cpu in thousandths, all else in its own unit.
type Amounts map[corev1.ResourceName]int64

// Ledger keeps count, per peer, of what is granted and what its pods may use at most. It is not safe for concurrent use: whoever asks and
// notes the answer under one lock admits exactly as much as is granted.
type Ledger struct {
	grants map[string]map[types.NamespacedName]Amounts
	seen   map[types.NamespacedName]entry
	// admitted are pods that were let in, until they are seen.
	admitted map[types.NamespacedName]entry
	used     map[string]Amounts
}

type entry struct {
	peer    string
	uid     types.UID
	amounts Amounts
	until   time.Time
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		grants: map[string]map[types.NamespacedName]Amounts{},
		seen:   map[types.NamespacedName]entry{}, admitted: map[types.NamespacedName]entry{}, used: map[string]Amounts{},
	}
}

// SetGrant notes what one slice gives a peer; nil is nothing. All slices of a peer count together.
func (l *Ledger) SetGrant(peer string, slice types.NamespacedName, granted corev1.ResourceList) {
	if granted == nil {
		delete(l.grants[peer], slice)
		return
	}
	if l.grants[peer] == nil {
		l.grants[peer] = map[types.NamespacedName]Amounts{}
	}
	l.grants[peer][slice] = count(granted)
}

// DropGrant forgets a slice, whoever it was for.
func (l *Ledger) DropGrant(slice types.NamespacedName) {
	for peer := range l.grants {
		delete(l.grants[peer], slice)
	}
}

// Set notes a ShadowPod that exists. One that has ended holds nothing. One that asks for less than it did still has the pod that was made of it
// before: no pod is made smaller.
func (l *Ledger) Set(peer string, shadow *vkv1alpha1.ShadowPod) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	before := l.seen[key]
	if one, there := l.admitted[key]; there && (one.uid == "" || one.uid == shadow.UID) {
		l.take(l.admitted, key)
	}
	l.take(l.seen, key)
	if finished(shadow.Status.Phase) {
		return
	}
	amounts := limits(&shadow.Spec.Pod)
	if before.uid == shadow.UID {
		raise(amounts, before.amounts)
	}
	l.put(l.seen, key, entry{peer: peer, uid: shadow.UID, amounts: amounts})
}

// Delete notes that a ShadowPod is gone.
func (l *Ledger) Delete(shadow *vkv1alpha1.ShadowPod) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	if one, there := l.seen[key]; there && one.uid == shadow.UID {
		l.take(l.seen, key)
	}
}

// Admit tells what is against a new ShadowPod; if nothing is, room is kept for it, unless it is only asked for.
func (l *Ledger) Admit(peer string, shadow *vkv1alpha1.ShadowPod, now time.Time, onlyAsk bool) string {
	if problem := unlimited(&shadow.Spec.Pod); problem != "" {
		return problem
	}
	for key := range l.admitted {
		if l.admitted[key].until.Before(now) {
			l.take(l.admitted, key)
		}
	}
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	asked, granted := limits(&shadow.Spec.Pod), l.granted(peer)
	replaced := []Amounts{l.seen[key].amounts, l.admitted[key].amounts} // a name is free again before it is used again
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		used := l.used[peer][name]
		for _, one := range replaced {
			used -= one[name]
		}
		most, bounded := granted[name]
		if !bounded && name == corev1.ResourcePods {
			continue
		}
		if used+asked[name] > most {
			return fmt.Sprintf("the limits of this pod ask for %s of %s; %s of %s granted to cluster %s are in use: wait for pods to end, lower the limits, or ask the provider for more",
				text(name, asked[name]), name, text(name, used), text(name, most), peer)
		}
	}
	if !onlyAsk {
		l.take(l.admitted, key)
		l.put(l.admitted, key, entry{peer: peer, uid: shadow.UID, amounts: asked, until: now.Add(admittedFor)})
	}
	return ""
}

func (l *Ledger) granted(peer string) Amounts {
	sum := Amounts{}
	for _, one := range l.grants[peer] {
		for name, value := range one {
			sum[name] = min(sum[name], math.MaxInt64-value) + value
		}
	}
	return sum
}

func (l *Ledger) put(in map[types.NamespacedName]entry, key types.NamespacedName, one entry) {
	in[key] = one
	if l.used[one.peer] == nil {
		l.used[one.peer] = Amounts{}
	}
	for name, value := range one.amounts {
		l.used[one.peer][name] += value
	}
}

func (l *Ledger) take(from map[types.NamespacedName]entry, key types.NamespacedName) {
	one, there := from[key]
	if !there {
		return
	}
	delete(from, key)
	for name, value := range one.amounts {
		if l.used[one.peer][name] -= value; l.used[one.peer][name] == 0 {
			delete(l.used[one.peer], name)
		}
	}
	if len(l.used[one.peer]) == 0 {
		delete(l.used, one.peer)
	}
}

// unlimited names a container without limits: what it may use cannot be counted.
func unlimited(spec *corev1.PodSpec) string {
	for list, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if limit, there := containers[i].Resources.Limits[name]; !there || limit.Sign() <= 0 {
					return fmt.Sprintf("spec.pod.%s[%d] (%.63s) has no limit for %s: this provider enforces what it grants, so every container needs limits for cpu and memory",
						list, i, containers[i].Name, name)
				}
			}
		}
	}
	return ""
}

// limits are the most that a pod may use: what the scheduler would sum up of its containers, or what the pod says of itself as a whole where that
// is more. A node lets the containers together use the limits of the whole, and the scheduler keeps its requests free for it, whatever the sum.
func limits(spec *corev1.PodSpec) Amounts {
	amounts := count(resources.PodLimits(&corev1.Pod{Spec: *spec}, resources.PodResourcesOptions{SkipPodLevelResources: true}))
	if spec.Resources != nil {
		raise(amounts, count(spec.Resources.Limits))
		raise(amounts, count(spec.Resources.Requests))
	}
	amounts[corev1.ResourcePods] = 1
	return amounts
}

// raise makes each amount at least what another has.
func raise(amounts, least Amounts) {
	for name, value := range least {
		amounts[name] = max(amounts[name], value)
	}
}

func count(list corev1.ResourceList) Amounts {
	amounts := make(Amounts, len(list)+1)
	for name, quantity := range list {
		limit, value := resource.NewQuantity(bound, resource.DecimalSI), quantity.Value
		if name == corev1.ResourceCPU {
			limit, value = resource.NewMilliQuantity(bound, resource.DecimalSI), quantity.MilliValue
		}
		switch {
		case quantity.Sign() <= 0:
		case quantity.Cmp(*limit) >= 0:
			amounts[name] = bound
		default:
			amounts[name] = value()
		}
	}
	return amounts
}

func text(name corev1.ResourceName, value int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(value, resource.DecimalSI).String()
	case cmp.Compare(name, corev1.ResourceMemory) == 0 || strings.HasSuffix(string(name), "storage"):
		return resource.NewQuantity(value, resource.BinarySI).String()
	default:
		return resource.NewQuantity(value, resource.DecimalSI).String()
	}
}
