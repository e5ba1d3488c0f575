// SPDX-License-Identifier: Apache-2.0

package objects

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
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// together is for how long changes of pods are collected before their budgets are looked at.
const together = time.Second

// deletedThere: the administrator of the peer has the last word about what keeps his nodes from being drained.
func (r *Reflector) deletedThere(mapping *engine.Mapping, copied client.Object) {
	key := types.NamespacedName{Namespace: mapping.Local, Name: copied.GetName()}
	byOther := r.manages(mapping, copied) && r.budgets.Gone(key, copied.GetUID(), time.Now())
	local := r.Local.Get(key)
	if local == nil {
		r.budgets.Forget(key) // the user has deleted it
		return
	}
	if byOther && !mapping.Terminating() {
		r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonIncomplete, errDeletedThere)
	}
}

var errDeletedThere = errors.New("an administrator of the remote cluster has deleted the copy of this budget there, so that a drain of its nodes does not respect it; it is written again after an hour")

// podChanged looks at the budgets of a pod of this node whose labels, health or existence has changed.
func (o *Objects) podChanged(before, after client.Object) {
	r := o.Kind(kinds.PodDisruptionBudget.Name())
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
		o.budgets.Changed(pod, was, time.Now())
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

// budget returns the copy of a budget: a number of pods of this node.
func budget(r *Reflector, mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*policyv1.PodDisruptionBudget)
	if !ok || mapping.Skips(local) || r.options.NodePods == nil {
		return nil, nil
	}
	if !r.options.PodsSynced() {
		return nil, engine.ErrNotSynced
	}
	now, key := time.Now(), client.ObjectKeyFromObject(local)
	if left := r.budgets.StaysAway(key, now); left > 0 {
		r.Queue.AddAfter(key, left)
		return nil, nil
	}
	pods := r.budgets.Pods(local.Namespace, r.options.NodePods(local.Namespace), now)
	is, again, err := r.budgets.Decide(local, pods, now)
	switch {
	case errors.Is(err, disruption.ErrNotObserved):
		return nil, errNotNow
	case err != nil:
		return nil, fmt.Errorf("%w: %w", project.ErrRefused, err)
	}
	if again > 0 {
		r.Queue.AddAfter(key, again)
	}
	if !is.Sent {
		return nil, nil
	}
	missed, known := r.missed(mapping, local, pods)
	if !known {
		return nil, errNotNow
	}
	if missed != "" {
		r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonIncomplete, fmt.Errorf(
			"pods in the remote cluster do not have the labels %s of the selector, so that a drain of its nodes does not respect this budget: select by a label without a domain, or ask its administrator to allow the labels (value peers.metadata.pods.labels)", missed))
		r.Queue.AddAfter(key, refusals.Retry)
		return nil, nil
	}
	return kinds.Budget(mapping, local, is.Number), nil
}

// errNotNow leaves the copy of a budget as it is.
var errNotNow = fmt.Errorf("%w: %w", engine.ErrNotSynced, disruption.ErrNotObserved)

// missed returns the keys by which the copy of a budget does not select the same pods in the peer as the budget here; empty if it does. Pods that the peer does not
// have yet, or whose labels have just changed, prove nothing.
func (r *Reflector) missed(mapping project.NamespaceMapping, local *policyv1.PodDisruptionBudget, pods []disruption.Pod) (keys string, known bool) {
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
		there, exists := r.options.LabelsThere(types.NamespacedName{Namespace: mapping.Remote, Name: pod.Name})
		if !exists {
			continue
		}
		here := selector.Matches(pod.Now.Labels)
		if here != selector.Matches(kinds.LabelsThere(mapping, pod.Now.Labels, there)) {
			return strings.Join(doubtful, ", "), true
		}
		known = known || here
	}
	return "", known
}

// disrupts reports whether a budget selects a pod of this node.
func (r *Reflector) disrupts(mapping project.NamespaceMapping, object client.Object) bool {
	if mapping.Skips(object) || r.options.NodePods == nil {
		return false
	}
	selector := selectorOf(object)
	return slices.ContainsFunc(r.options.NodePods(object.GetNamespace()), func(pod *corev1.Pod) bool {
		return !podphase.Final(pod.Status.Phase) && selector.Matches(klabels.Set(pod.Labels))
	})
}

// sharedPods names the other budgets select pods of this node that a budget selects: Kubernetes lets none of these pods be evicted, here or there.
func sharedPods(r *Reflector, object client.Object) error {
	selector := selectorOf(object)
	var selected []klabels.Set
	for _, one := range r.options.NodePods(object.GetNamespace()) {
		if set := klabels.Set(one.Labels); selector.Matches(set) {
			selected = append(selected, set)
		}
	}
	var others []string
	for _, one := range r.Local.All(object.GetNamespace()) {
		if other := selectorOf(one); one.GetName() != object.GetName() && slices.ContainsFunc(selected, func(set klabels.Set) bool { return other.Matches(set) }) {
			others = append(others, one.GetName())
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("pods have more than one budget, this one and %s: Kubernetes refuses to evict such a pod, here and in the remote cluster, so that a drain fails; leave one budget for each pod", strings.Join(others[:min(len(others), 5)], ", "))
}
