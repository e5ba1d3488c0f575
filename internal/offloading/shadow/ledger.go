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

// admittedFor is how long resources are reserved for an admitted pod that was not observed since: a later webhook may have refused it.
const admittedFor = time.Minute

// maxAmount bounds the request of one pod, and maxGrant the grant of one slice, so that sums fit into an int64.
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
	limits bool
	grants map[string]map[types.NamespacedName]Amounts
	seen   map[types.NamespacedName]entry
	// admitted are pods that were admitted and not observed yet.
	admitted map[types.NamespacedName]entry
	used     map[string]Amounts
}

type entry struct {
	peer    string
	uid     types.UID
	amounts Amounts
	until   time.Time
	// unproven: the pod may have less than the amounts, which were never compared with the grant.
	unproven bool
}

// NewLedger returns an empty ledger. With limits, it counts the limits of pods and refuses pods without limits; otherwise it counts the requests.
func NewLedger(limits bool) *Ledger {
	return &Ledger{
		limits: limits, grants: map[string]map[types.NamespacedName]Amounts{},
		seen: map[types.NamespacedName]entry{}, admitted: map[types.NamespacedName]entry{}, used: map[string]Amounts{},
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
	l.grants[peer][slice] = count(granted, maxGrant)
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
	if one, there := l.admitted[key]; there && (one.uid == "" || one.uid == shadow.UID) {
		l.take(l.admitted, key)
	}
	l.take(l.seen, key)
	if finished(shadow.Status.Phase) {
		return
	}
	amounts := l.amounts(&shadow.Spec.Pod)
	if before.uid == shadow.UID {
		raise(amounts, before.amounts)
	}
	l.put(l.seen, key, entry{peer: peer, uid: shadow.UID, amounts: amounts})
}

// Has reports whether the ledger counts a ShadowPod.
func (l *Ledger) Has(shadow *vkv1alpha1.ShadowPod) bool {
	one, there := l.seen[types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}]
	return there && one.uid == shadow.UID
}

// Delete records that a ShadowPod is gone.
func (l *Ledger) Delete(shadow *vkv1alpha1.ShadowPod) {
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	if one, there := l.seen[key]; there && one.uid == shadow.UID {
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
	asked, granted := l.amounts(&shadow.Spec.Pod), l.granted(peer)
	replaced := []Amounts{l.seen[key].amounts, l.admitted[key].amounts} // the earlier holder of the name is gone before the name is used again
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		used := l.used[peer][name]
		for _, one := range replaced {
			used -= one[name]
		}
		// A resource that is not granted has no amount, like on the virtual node, where no scheduler puts such a pod.
		if most := granted[name]; asked[name] > most-used {
			return fmt.Sprintf("the %s of this pod ask for %s of %s; %s of %s granted to cluster %s are in use: wait for pods to end, lower the %[1]s, or ask the provider for more",
				l.counted(), text(name, asked[name]), name, text(name, used), text(name, most), peer)
		}
	}
	if !dryRun {
		l.take(l.admitted, key)
		l.put(l.admitted, key, entry{peer: peer, uid: shadow.UID, amounts: asked, until: now.Add(admittedFor)})
	}
	return ""
}

// SetUnproven is Set for a ShadowPod whose pod does not have its present state: an earlier process may have refused that.
func (l *Ledger) SetUnproven(peer string, shadow *vkv1alpha1.ShadowPod) {
	l.Set(peer, shadow)
	key := types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}
	if one, there := l.seen[key]; there {
		one.unproven = true
		l.seen[key] = one
	}
}

// Grow returns why a ShadowPod that is counted must not get the resources that it asks for now; nothing if it may. Only what grows is compared with the
// grant, which may have become smaller.
func (l *Ledger) Grow(peer string, shadow *vkv1alpha1.ShadowPod) string {
	if l.limits {
		if problem := unlimited(&shadow.Spec.Pod); problem != "" {
			return problem
		}
	}
	counted := Amounts{}
	one := l.seen[types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}]
	if one.uid == shadow.UID {
		counted = one.amounts
	}
	asked, granted := l.amounts(&shadow.Spec.Pod), l.granted(peer)
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		free := granted[name] - l.used[peer][name]
		if more := asked[name] - counted[name]; (more > 0 || one.unproven) && more > free {
			return fmt.Sprintf("the pod asks for %s of %s in place of %s, and %s of %s granted to cluster %s are in use: wait for pods to end, ask for less, or ask the provider for more",
				text(name, asked[name]), name, text(name, counted[name]), text(name, l.used[peer][name]), text(name, granted[name]), peer)
		}
	}
	return ""
}

// amounts returns what counts of a pod.
func (l *Ledger) amounts(spec *corev1.PodSpec) Amounts {
	amounts := requests(spec)
	if l.limits {
		raise(amounts, limits(spec))
	}
	return amounts
}

func (l *Ledger) counted() string {
	if l.limits {
		return "limits"
	}
	return "requests"
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

// unlimited names a container without limits: its use cannot be counted.
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

// requests returns what the scheduler will reserve for a pod. A resource of which the pod states only a limit counts with the limit: the API server
// sets the request to it when the pod is created. A pod without requests reserves nothing but a place among the pods.
func requests(spec *corev1.PodSpec) Amounts {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: requesting(spec.Containers), InitContainers: requesting(spec.InitContainers)}}
	amounts := count(resources.PodRequests(pod, resources.PodResourcesOptions{SkipPodLevelResources: true}), maxAmount)
	if spec.Resources != nil {
		least := count(spec.Resources.Requests, maxAmount)
		for name, limit := range count(spec.Resources.Limits, maxAmount) {
			if _, stated := spec.Resources.Requests[name]; !stated && amounts[name] == 0 {
				least[name] = limit
			}
		}
		raise(amounts, least)
	}
	amounts[corev1.ResourcePods] = 1
	return amounts
}

// requesting returns the containers with the requests that the API server will give them.
func requesting(containers []corev1.Container) []corev1.Container {
	all := make([]corev1.Container, len(containers))
	for i := range containers {
		from := &containers[i].Resources
		stated := make(corev1.ResourceList, len(from.Limits))
		maps.Copy(stated, from.Limits)
		maps.Copy(stated, from.Requests)
		all[i] = corev1.Container{Name: containers[i].Name, RestartPolicy: containers[i].RestartPolicy, Resources: corev1.ResourceRequirements{Requests: stated}}
	}
	return all
}

// limits returns the most that a pod may use: the sum over its containers as the scheduler computes it, or the pod-level resources where
// these are more. The node lets the containers together use the pod-level limits, and the scheduler reserves the pod-level requests,
// whatever the sum is.
func limits(spec *corev1.PodSpec) Amounts {
	amounts := count(resources.PodLimits(&corev1.Pod{Spec: *spec}, resources.PodResourcesOptions{SkipPodLevelResources: true}), maxAmount)
	if spec.Resources != nil {
		raise(amounts, count(spec.Resources.Limits, maxAmount))
		raise(amounts, count(spec.Resources.Requests, maxAmount))
	}
	amounts[corev1.ResourcePods] = 1
	return amounts
}

// raise sets each amount to at least that of least.
func raise(amounts, least Amounts) {
	for name, value := range least {
		amounts[name] = max(amounts[name], value)
	}
}

// count converts quantities to amounts, each at most most. Negative ones count nothing.
func count(list corev1.ResourceList, most int64) Amounts {
	amounts := make(Amounts, len(list)+1)
	for name, quantity := range list {
		limit, value := resource.NewQuantity(most, resource.DecimalSI), quantity.Value
		if name == corev1.ResourceCPU {
			limit, value = resource.NewMilliQuantity(most, resource.DecimalSI), quantity.MilliValue
		}
		switch {
		case quantity.Sign() <= 0:
		case quantity.Cmp(*limit) >= 0:
			amounts[name] = most
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
