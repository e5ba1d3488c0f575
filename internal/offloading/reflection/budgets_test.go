// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/disruption"
)

// budget creates a disruption budget of the pods with a label.
func (e *env) budget(namespace, name, key, value string) *policyv1.PodDisruptionBudget {
	e.t.Helper()
	made := &policyv1.PodDisruptionBudget{ObjectMeta: named(namespace, name), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromString("66%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
	}}
	e.must(e.consumer.Create(e.t.Context(), made))
	return made
}

// counts is what Kubernetes would write into the status of a budget.
func (e *env) counts(namespace, name string, desired, current int32) {
	e.t.Helper()
	of := &policyv1.PodDisruptionBudget{ObjectMeta: named(namespace, name)}
	e.must(e.consumer.Get(e.t.Context(), client.ObjectKeyFromObject(of), of))
	of.Status.ObservedGeneration, of.Status.DesiredHealthy, of.Status.CurrentHealthy = of.Generation, desired, current
	e.must(e.consumer.Status().Update(e.t.Context(), of))
}

// number waits until the copy of a budget has a number, and returns it.
func (e *env) number(remoteNS, name string, want int32) *policyv1.PodDisruptionBudget {
	e.t.Helper()
	there := &policyv1.PodDisruptionBudget{ObjectMeta: named(remoteNS, name)}
	var seen []string
	e.t.Cleanup(func() {
		if e.t.Failed() {
			e.t.Logf("numbers of %s: %v", name, seen)
		}
	})
	e.until(name+" has the number", func() bool {
		*there = policyv1.PodDisruptionBudget{ObjectMeta: named(remoteNS, name)}
		if !e.exists(e.provider, there) {
			return false
		}
		if is := there.Spec.MinAvailable.String(); !slices.Contains(seen, is) {
			seen = append(seen, is)
		}
		return *there.Spec.MinAvailable == intstr.FromInt32(want)
	})
	return there
}

const budgetResource = "poddisruptionbudgets"

// TestBudgets: the peer keeps as many pods healthy as the budget needs beyond those that are healthy elsewhere, and learns it in one
// write. An eviction there, and a restart, cost none.
func TestBudgets(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	stop := e.run()
	for _, name := range []string{"a", "b"} {
		e.must(e.consumer.Create(t.Context(), e.pod(local, name)))
		e.untilPod(local, name, "Ready", isReady)
	}
	e.budget(local, "web", "app", "x")
	e.budget(local, "others", "app", "y") // selects no pod of this node
	e.waitIdle()
	if there := (&policyv1.PodDisruptionBudget{ObjectMeta: named(remoteNS, "web")}); e.exists(e.provider, there) {
		t.Fatalf("a budget that Kubernetes has not evaluated is sent: %v", there.Spec)
	}
	e.counts(local, "web", 2, 3) // one is healthy elsewhere
	e.counts(local, "others", 1, 1)
	there := e.number(remoteNS, "web", 1)
	if want := map[string]string{"app": "x", labels.Origin: localID}; len(there.Spec.Selector.MatchLabels) != 2 || there.Spec.Selector.MatchLabels["app"] != "x" ||
		there.Spec.Selector.MatchLabels[labels.Origin] != localID {
		t.Errorf("it selects %v, want %v", there.Spec.Selector.MatchLabels, want)
	}
	if policy := there.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != policyv1.AlwaysAllow {
		t.Errorf("its policy for unhealthy pods is %v", policy)
	}
	e.waitIdle()
	if writes := e.toProvider.writesTo(budgetResource); len(writes) != 1 {
		t.Errorf("writes of budgets: %v, want one", writes)
	}

	e.toProvider.reset()
	provider.holdReady(true)
	evicted := &corev1.Pod{ObjectMeta: named(remoteNS, "a")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(evicted), evicted))
	e.must(e.provider.Delete(t.Context(), evicted, client.GracePeriodSeconds(0)))
	e.untilPod(local, "a", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	e.counts(local, "web", 2, 2)
	e.waitIdle()
	provider.holdReady(false)
	e.until("the pod is there again", func() bool { return e.exists(e.provider, evicted) })
	provider.ready(evicted)
	e.untilPod(local, "a", "Ready again", isReady)
	e.counts(local, "web", 2, 3)
	e.waitIdle()
	if writes := e.toProvider.writesTo(budgetResource); len(writes) != 0 {
		t.Errorf("an eviction there costs %v", writes)
	}

	e.counts(local, "web", 2, 2) // the one elsewhere has failed
	e.number(remoteNS, "web", 2)
	stop()
	e.toProvider.reset()
	stop = e.run()
	e.until("the budgets are compared", func() bool {
		mapping, _ := e.reflection.engine.Namespaces.Local(local)
		return mapping != nil && mapping.Compared("PodDisruptionBudget")
	})
	e.waitIdle()
	if writes := e.toProvider.writesTo(budgetResource); len(writes) != 0 {
		t.Errorf("a restart costs %v", writes)
	}
	// After another restart, a number that is too large is lowered as late as before: what is known is not older.
	stop()
	e.counts(local, "web", 2, 3)
	e.toProvider.reset()
	since := time.Now()
	stop = e.run()
	e.number(remoteNS, "web", 1)
	if after := time.Since(since); after < disruption.Settle {
		t.Errorf("it is lowered %v after a restart, want %v at least", after, disruption.Settle)
	}

	// The form changes, and the copy stays as it is until Kubernetes has evaluated it.
	e.toProvider.reset()
	web := &policyv1.PodDisruptionBudget{ObjectMeta: named(local, "web")}
	e.edit(e.consumer, web, func() { web.Spec.MinAvailable, web.Spec.MaxUnavailable = nil, new(intstr.FromInt32(0)) })
	e.waitIdle()
	if writes := e.toProvider.writesTo(budgetResource); len(writes) != 0 {
		t.Errorf("a change that Kubernetes has not evaluated costs %v", writes)
	}
	e.counts(local, "web", 3, 3)
	e.number(remoteNS, "web", 2)
	e.must(e.consumer.Delete(t.Context(), web))
	e.until("the copy goes with the budget", func() bool { return !e.exists(e.provider, there) })
	stop()
}

// runsPod starts everything, with one pod that is Ready.
func (e *env) runsPod() (local, remoteNS string) {
	e.t.Helper()
	local, remoteNS = e.offload()
	e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(e.t.Context(), e.pod(local, "a")))
	e.untilPod(local, "a", "Ready", isReady)
	return local, remoteNS
}

// TestBudgetDeletedThere: the peer's administrator deletes a budget that keeps his node from being drained, and it stays
// away, also after a restart. The user learns it.
func TestBudgetDeletedThere(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "a")))
	e.untilPod(local, "a", "Ready", isReady)
	e.budget(local, "kept", "app", "x")
	e.counts(local, "kept", 1, 1)
	e.number(remoteNS, "kept", 1)
	e.budget(local, "web", "app", "x")
	e.counts(local, "web", 1, 1)
	there := e.number(remoteNS, "web", 1)
	e.must(e.provider.Delete(t.Context(), there))
	e.until("an event reports it", func() bool { return e.event(local, "web", "ReflectionIncomplete", "has deleted the copy") })
	e.counts(local, "web", 2, 2)
	e.waitIdle()
	if e.exists(e.provider, there) {
		t.Error("the budget is there again")
	}
	stop()
	// One that is deleted meanwhile is written again: it looks like one that was never there.
	e.must(e.provider.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: named(remoteNS, "kept")}))
	e.run()
	e.number(remoteNS, "kept", 1)
	e.counts(local, "web", 1, 1)
	e.waitIdle()
	if e.exists(e.provider, there) {
		t.Error("the budget is there again after a restart")
	}
	// A budget that the user replaces is another one.
	e.must(e.consumer.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: named(local, "web")}))
	e.waitIdle()
	e.budget(local, "web", "app", "x")
	e.counts(local, "web", 1, 1)
	e.number(remoteNS, "web", 1)
}

// TestBudgetLabels: a budget whose selector needs a label in a domain is sent if the provider lets the pods have it, and otherwise reported.
func TestBudgetLabels(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	e.budget(local, "db", "db.example.com/cluster", "orders")
	e.counts(local, "db", 1, 1)
	pod := e.pod(local, "db-0")
	pod.Labels["db.example.com/cluster"] = "orders"
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "db-0", "Ready", isReady)
	there := e.number(remoteNS, "db", 1) // this provider takes every label
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "db-0")}
	e.edit(e.provider, remote, func() { delete(remote.Labels, "db.example.com/cluster") })
	e.counts(local, "db", 2, 2) // so that it is looked at
	e.until("an event names the label", func() bool {
		return e.event(local, "db", "ReflectionIncomplete", "do not have the labels db.example.com/cluster of the selector")
	})
	e.until("a budget that counts other pods is none", func() bool { return !e.exists(e.provider, there) })
}

// TestSharedPods: Kubernetes refuses to evict a pod of two budgets. Who wrote them learns that it is so there as well.
func TestSharedPods(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.runsPod()
	for _, name := range []string{"one", "two"} {
		e.budget(local, name, "app", "x")
	}
	for _, name := range []string{"one", "two"} {
		e.counts(local, name, 1, 1)
		e.number(remoteNS, name, 1)
	}
	for name, other := range map[string]string{"one": "two", "two": "one"} {
		e.until("an event names the other budget", func() bool { return e.event(local, name, "ReflectionIncomplete", "this one and "+other) })
	}
}

// TestBudgetsNotGranted: a provider of an earlier version grants no rights on budgets. Their owners learn it once, and the provider is not asked every few
// seconds. Once it grants them, the budgets are there. If it takes back the right to write them, none stays there that cannot be corrected.
func TestBudgetsNotGranted(t *testing.T) {
	e := newEnv(t)
	e.grantBudgets()
	local, remoteNS := e.runsPod()
	e.budget(local, "web", "app", "x")
	e.budget(local, "others", "app", "y")
	for _, name := range []string{"web", "others"} {
		e.counts(local, name, 1, 1)
	}
	e.until("an event names the value", func() bool { return e.event(local, "web", "ReflectionIncomplete", "value peers.budgets") })
	for current := range int32(5) {
		e.counts(local, "web", 1, current)
	}
	e.waitIdle()
	reported := 0
	var all corev1.EventList
	e.must(e.consumer.List(t.Context(), &all, client.InNamespace(local)))
	for _, one := range all.Items {
		if one.InvolvedObject.Kind == "PodDisruptionBudget" {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("%d events about budgets, want one: %v", reported, all.Items)
	}
	e.grantBudgets("get", "list", "watch", "create", "update", "patch", "delete")
	e.counts(local, "web", 2, 1)
	there := e.number(remoteNS, "web", 2)
	e.toProvider.mu.Lock()
	questions := 0
	for _, path := range e.toProvider.reads {
		if strings.HasSuffix(path, "/"+budgetResource) {
			questions++
		}
	}
	e.toProvider.mu.Unlock()
	if questions > 12 {
		t.Errorf("%d lists of budgets, want some few", questions)
	}

	e.grantBudgets("get", "list", "watch", "delete") // peers.budgets=false
	e.counts(local, "web", 3, 1)
	e.until("a budget that is too small is gone", func() bool { return !e.exists(e.provider, there) })
	e.until("an event reports why", func() bool { return e.event(local, "web", "FailedReflection", "value peers.budgets") })
}

// grantBudgets replaces what the provider lets the consumer do with budgets.
func (e *env) grantBudgets(verbs ...string) {
	e.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.identity.Namespace}}
	e.edit(e.provider, role, func() {
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return rule.APIGroups[0] == "policy" })
		if len(verbs) > 0 {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"policy"}, Resources: []string{budgetResource}, Verbs: verbs})
		}
	})
}

// TestBudgetRightsLost: a provider that goes back to an earlier version takes the rights away. Its namespace is not watched in vain, users learn it, and it is
// followed again when the rights are back.
func TestBudgetRightsLost(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.runsPod()
	e.budget(local, "web", "app", "x")
	e.counts(local, "web", 1, 1)
	e.number(remoteNS, "web", 1)
	e.grantBudgets()
	followed := func() bool { return e.reflection.objects.Kind("PodDisruptionBudget").Remote.Has(remoteNS) }
	e.until("the namespace is not followed any more", func() bool {
		e.proxy.Cut() // a watch that is open keeps its rights
		return !followed()
	})
	e.until("an event names the value", func() bool { return e.event(local, "web", "ReflectionIncomplete", "value peers.budgets") })
	if followed() {
		t.Error("the namespace is watched without rights")
	}
	e.grantBudgets("get", "list", "watch", "create", "update", "patch", "delete")
	e.counts(local, "web", 2, 1)
	e.number(remoteNS, "web", 2)
}
