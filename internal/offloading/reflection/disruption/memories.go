// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/kube/podphase"
)

const (
	// Respite is for how long a copy stays away that the peer's administrator has deleted.
	Respite = time.Hour
	// mostStates bounds how many earlier states of a pod are remembered.
	mostStates = 8
)

// Memories remember what the numbers of budgets depend on besides the present: what was decided, how pods were a moment ago, and which copies the peer
// has deleted. The zero value remembers nothing.
type Memories struct {
	mu       sync.Mutex
	memories map[types.NamespacedName]Memory
	// earlier are the states that pods of this node had within the last Lag.
	earlier map[types.NamespacedName][]earlier
	cleaned time.Time // when all old ones were forgotten
	// away is until when a copy stays away. deleted are copies that we delete ourselves, with their local namespaces.
	away    map[types.NamespacedName]time.Time
	deleted map[types.UID]string
}

type earlier struct {
	State
	until time.Time
}

// Changed records the state that a pod had until now.
func (b *Memories) Changed(pod types.NamespacedName, was State, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.earlier == nil {
		b.earlier = map[types.NamespacedName][]earlier{}
	}
	if now.Sub(b.cleaned) > Lag {
		b.cleaned = now
		for key := range b.earlier {
			b.expire(key, now)
		}
	}
	all := append(b.earlier[pod], earlier{was, now.Add(Lag)})
	b.earlier[pod] = all[max(len(all)-mostStates, 0):]
}

// expire forgets what a pod was too long ago. The lock is held.
func (b *Memories) expire(pod types.NamespacedName, now time.Time) {
	b.earlier[pod] = slices.DeleteFunc(b.earlier[pod], func(old earlier) bool { return !old.until.After(now) })
	if len(b.earlier[pod]) == 0 {
		delete(b.earlier, pod)
	}
}

// Pods returns the pods of the node in a namespace, and those that were there a moment ago.
func (b *Memories) Pods(namespace string, present []*corev1.Pod, now time.Time) (all []Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := map[string][]State{}
	for key, states := range b.earlier {
		if key.Namespace != namespace {
			continue
		}
		for _, old := range states {
			if old.until.After(now) {
				was[key.Name] = append(was[key.Name], old.State)
			}
		}
	}
	for _, pod := range present {
		all = append(all, Pod{Name: pod.Name, Exists: !podphase.Final(pod.Status.Phase), Now: StateOf(pod), Was: was[pod.Name]})
		delete(was, pod.Name)
	}
	for name, states := range was {
		all = append(all, Pod{Name: name, Was: states})
	}
	return all
}

// Decide decides about a budget, and remembers it.
func (b *Memories) Decide(local *policyv1.PodDisruptionBudget, pods []Pod, now time.Time) (Memory, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := types.NamespacedName{Namespace: local.Namespace, Name: local.Name}
	is, again, err := Decide(local, pods, b.memories[key], now)
	if b.memories == nil {
		b.memories = map[types.NamespacedName]Memory{}
	}
	if b.memories[key] = is; !is.Sent {
		delete(b.memories, key)
	}
	return is, again, err
}

// Deletes records that we delete a copy.
func (b *Memories) Deletes(namespace string, copied types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deleted == nil {
		b.deleted = map[types.UID]string{}
	}
	b.deleted[copied] = namespace
}

// Gone records that a copy is gone, and reports whether another client has deleted it.
func (b *Memories) Gone(local types.NamespacedName, copied types.UID, now time.Time) (byOther bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.deleted[copied]; ok {
		delete(b.deleted, copied)
		return false
	}
	if b.away == nil {
		b.away = map[types.NamespacedName]time.Time{}
	}
	b.away[local] = now.Add(Respite)
	return true
}

// WasDeleted records that another client had deleted a copy at a time before this process started.
func (b *Memories) WasDeleted(local types.NamespacedName, at, now time.Time) {
	if at.After(now) {
		at = now
	}
	until := at.Add(Respite)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away == nil {
		b.away = map[types.NamespacedName]time.Time{}
	}
	if until.After(now) && until.After(b.away[local]) {
		b.away[local] = until
	}
}

// WasSent records the number of a copy from before this process started. The pods and the status of the budget
// are not known well enough yet to lower it at once.
func (b *Memories) WasSent(local types.NamespacedName, number int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memories == nil {
		b.memories = map[types.NamespacedName]Memory{}
	}
	if _, ok := b.memories[local]; !ok {
		b.memories[local] = Memory{Sent: true, Number: number}
	}
}

// StaysAway returns for how much longer the copy of a budget is not to be written.
func (b *Memories) StaysAway(local types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.away[local].Sub(now)
	if left <= 0 {
		delete(b.away, local)
	}
	return max(left, 0)
}

// Forget drops what is known of a budget that is gone.
func (b *Memories) Forget(local types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.memories, local)
	delete(b.away, local)
}

// ForgetNamespace drops what is known of a namespace that is not offloaded any more: with it, all copies are deleted.
func (b *Memories) ForgetNamespace(local string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.memories, func(key types.NamespacedName, _ Memory) bool { return key.Namespace == local })
	maps.DeleteFunc(b.away, func(key types.NamespacedName, _ time.Time) bool { return key.Namespace == local })
	maps.DeleteFunc(b.deleted, func(_ types.UID, namespace string) bool { return namespace == local })
}
