// SPDX-License-Identifier: Apache-2.0

// Package budgets copies disruption budgets: the peer gets the number of pods of this node there that have to stay healthy.
//
//	pods of the node, status of budgets ──► which number the peer gets                   budgets.go, and package disruption (pure)
//	events about deleted copies ──► which stay away after a restart                      recall.go
//
// It must not know how copies are read and written, which package objects does. The tests of package reflection cover it.
package budgets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/disruption"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/objects"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// together is for how long changes of pods are collected before their budgets are looked at.
const together = time.Second

// Options of the reflection of disruption budgets. Without pods, all are nil.
type Options struct {
	// PodsSynced reports whether PodChanged was called for all pods.
	PodsSynced func() bool
	// NodePods returns the pods of the node in a local namespace, LabelsThere those labels of a remote pod that only
	// some providers let it have, and whether it exists.
	NodePods    func(namespace string) []*corev1.Pod
	LabelsThere func(remote types.NamespacedName) (map[string]string, bool)
}

// Budgets is the part of objects for disruption budgets.
type Budgets struct {
	engine   *engine.Engine
	options  Options
	objects  *objects.Objects
	memories disruption.Memories
}

// New returns the part, for objects.New.
func New(e *engine.Engine, o Options) *Budgets { return &Budgets{engine: e, options: o} }

// Attach implements objects.Part.
func (b *Budgets) Attach(o *objects.Objects) []objects.Hooks {
	b.objects = o
	return []objects.Hooks{{
		Kind: kinds.PodDisruptionBudget, Project: b.project, Lacks: b.sharedPods, Concerns: b.disrupts,
		Changed: b.changed, Gone: b.deletedThere,
		Removes: func(mapping *engine.Mapping, copied client.Object) {
			b.memories.Deletes(mapping.Local, copied.GetUID())
		},
		Stopped: func(mapping *engine.Mapping) { b.memories.ForgetNamespace(mapping.Local) },
		Recall:  b.recallDeletions, Compares: b.recallNumber,
	}}
}

// reflector returns that of budgets; nil if they are not reflected.
func (b *Budgets) reflector() *objects.Reflector { return b.objects.Kind(name) }

var name = kinds.PodDisruptionBudget.Name()

// changed forgets a budget that is gone.
func (b *Budgets) changed(before, after client.Object) {
	if after == nil {
		b.memories.Forget(client.ObjectKeyFromObject(before))
	}
}

// deletedThere: the administrator of the peer has the last word about what keeps his nodes from being drained.
func (b *Budgets) deletedThere(mapping *engine.Mapping, copied client.Object) {
	r := b.reflector()
	key := types.NamespacedName{Namespace: mapping.Local, Name: copied.GetName()}
	byOther := r.Manages(mapping, copied) && b.memories.Gone(key, copied.GetUID(), time.Now())
	local := r.Local.Get(key)
	if local == nil {
		b.memories.Forget(key) // the user has deleted it
		return
	}
	if byOther && !mapping.Terminating() {
		b.engine.Recorder.Changed(local, name, events.ReasonIncomplete, errDeletedThere)
	}
}

var errDeletedThere = errors.New("an administrator of the remote cluster has deleted the copy of this budget there, so that a drain of its nodes does not " +
	"respect it; it is written again after an hour")

// PodChanged implements objects.Part: it looks at the budgets of a pod of this node whose labels, health or existence has changed.
func (b *Budgets) PodChanged(before, after client.Object) {
	r := b.reflector()
	old, _ := before.(*corev1.Pod)
	now, _ := after.(*corev1.Pod)
	if r == nil || old == nil && now == nil {
		return
	}
	was, is := disruption.StateOf(old), disruption.StateOf(now)
	existed, exists := old != nil && !podphase.Final(old.Status.Phase), now != nil && !podphase.Final(now.Status.Phase)
	if was.Healthy == is.Healthy && existed == exists && maps.Equal(was.Labels, is.Labels) {
		return
	}
	pod, counts := client.ObjectKeyFromObject(engine.Either(before, after)), false
	for _, object := range r.Local.All(pod.Namespace) {
		if selector := selectorOf(object); selector.Matches(was.Labels) || selector.Matches(is.Labels) {
			r.Queue.AddAfter(client.ObjectKeyFromObject(object), together)
			counts = true
		}
	}
	if counts && old != nil && (was.Healthy || is.Healthy) {
		b.memories.Changed(pod, was, time.Now())
	}
}

// selectorOf returns the selector of a budget; one that selects nothing for other objects.
func selectorOf(object client.Object) klabels.Selector {
	if local, ok := object.(*policyv1.PodDisruptionBudget); ok {
		if selector, err := disruption.Selector(local); err == nil {
			return selector
		}
	}
	return klabels.Nothing()
}

// project returns the copy of a budget: a number of pods of this node.
func (b *Budgets) project(mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*policyv1.PodDisruptionBudget)
	if !ok || mapping.Skips(local) || b.options.NodePods == nil {
		return nil, nil
	}
	if !b.options.PodsSynced() {
		return nil, engine.ErrNotSynced
	}
	now, key := time.Now(), client.ObjectKeyFromObject(local)
	if left := b.memories.StaysAway(key, now); left > 0 {
		b.reflector().Queue.AddAfter(key, left)
		return nil, nil
	}
	pods := b.memories.Pods(local.Namespace, b.options.NodePods(local.Namespace), now)
	is, again, err := b.memories.Decide(local, pods, now)
	switch {
	case errors.Is(err, disruption.ErrNotObserved):
		return nil, errNotNow
	case err != nil:
		return nil, fmt.Errorf("%w: %w", project.ErrRefused, err)
	}
	if again > 0 {
		b.reflector().Queue.AddAfter(key, again)
	}
	if !is.Sent {
		return nil, nil
	}
	missed, ok := b.missed(mapping, local, pods)
	if !ok {
		return nil, errNotNow
	}
	if missed != "" {
		b.engine.Recorder.Changed(local, name, events.ReasonIncomplete, fmt.Errorf(
			"pods in the remote cluster do not have the labels %s of the selector, so that a drain of its nodes does not respect this budget: select by a label "+
				"without a domain, or ask its administrator to allow the labels (value peers.metadata.pods.labels)", missed))
		b.reflector().Queue.AddAfter(key, refusals.Retry)
		return nil, nil
	}
	return kinds.Budget(mapping, local, is.Number), nil
}

// errNotNow leaves the copy of a budget as it is.
var errNotNow = fmt.Errorf("%w: %w", engine.ErrNotSynced, disruption.ErrNotObserved)

// missed returns the keys by which the copy of a budget does not select the same pods in the peer as the budget here; empty if it does. Pods that the peer does
// not have yet, or whose labels have just changed, prove nothing.
func (b *Budgets) missed(mapping project.NamespaceMapping, local *policyv1.PodDisruptionBudget, pods []disruption.Pod) (keys string, ok bool) {
	doubtful := kinds.Doubtful(mapping, local.Spec.Selector)
	if len(doubtful) == 0 {
		return "", true
	}
	selector := selectorOf(local)
	for i := range pods {
		pod := &pods[i]
		if !pod.Exists || len(pod.Was) > 0 {
			continue
		}
		there, exists := b.options.LabelsThere(types.NamespacedName{Namespace: mapping.Remote, Name: pod.Name})
		if !exists {
			continue
		}
		here := selector.Matches(pod.Now.Labels)
		if here != selector.Matches(kinds.LabelsThere(mapping, pod.Now.Labels, there)) {
			return strings.Join(doubtful, ", "), true
		}
		ok = ok || here
	}
	return "", ok
}

// disrupts reports whether a budget selects a pod of this node.
func (b *Budgets) disrupts(mapping project.NamespaceMapping, object client.Object) bool {
	if mapping.Skips(object) || b.options.NodePods == nil {
		return false
	}
	selector := selectorOf(object)
	return slices.ContainsFunc(b.options.NodePods(object.GetNamespace()), func(pod *corev1.Pod) bool {
		return !podphase.Final(pod.Status.Phase) && selector.Matches(klabels.Set(pod.Labels))
	})
}

// sharedPods names the other budgets select pods of this node that a budget selects: Kubernetes lets none of these pods be evicted, here or there.
func (b *Budgets) sharedPods(object client.Object) error {
	selector := selectorOf(object)
	var selected []klabels.Set
	for _, pod := range b.options.NodePods(object.GetNamespace()) {
		if set := klabels.Set(pod.Labels); selector.Matches(set) {
			selected = append(selected, set)
		}
	}
	var others []string
	for _, budget := range b.reflector().Local.All(object.GetNamespace()) {
		if other := selectorOf(budget); budget.GetName() != object.GetName() &&
			slices.ContainsFunc(selected, func(set klabels.Set) bool { return other.Matches(set) }) {
			others = append(others, budget.GetName())
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("pods have more than one budget, this one and %s: Kubernetes refuses to evict such a pod, here and in the remote cluster, so that a "+
		"drain fails; leave one budget for each pod", strings.Join(others[:min(len(others), 5)], ", "))
}
