// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/provider"
)

// offloadingStatus returns the status of a NamespaceOffloading.
func offloadingStatus(
	offloading *offloadingv1alpha1.NamespaceOffloading, name string, providers []provider.Provider, now time.Time,
) offloadingv1alpha1.NamespaceOffloadingStatus {
	status := offloadingv1alpha1.NamespaceOffloadingStatus{
		RemoteNamespaceName: name, ObservedGeneration: offloading.Generation,
		RemoteNamespacesConditions: map[string]offloadingv1alpha1.RemoteNamespaceConditions{},
	}
	fault := provider.CheckSelector(&offloading.Spec.ClusterSelector)
	for i := range providers {
		p := &providers[i]
		required := requiredCondition(offloading, p, fault)
		if p.Leaving && required.Status == corev1.ConditionFalse && !p.Holds(offloading.Namespace) {
			continue // a cluster that ends its peering is not listed
		}
		all := offloadingv1alpha1.RemoteNamespaceConditions{required}
		if ready := readyCondition(offloading.Namespace, name, p, required.Status == corev1.ConditionTrue); ready != nil {
			all = append(all, *ready)
		}
		before := offloading.Status.RemoteNamespacesConditions[p.Name]
		for i := range all {
			all[i].LastTransitionTime = since(before, all[i], now)
		}
		status.RemoteNamespacesConditions[p.Name] = all
	}
	status.OffloadingPhase = offloadingPhase(offloading.DeletionTimestamp != nil, status.RemoteNamespacesConditions)
	return status
}

// since returns the transition time of a condition: that of before if the status has not changed.
func since(before offloadingv1alpha1.RemoteNamespaceConditions, is offloadingv1alpha1.RemoteNamespaceCondition, now time.Time) metav1.Time {
	for _, was := range before {
		if was.Type == is.Type && was.Status == is.Status && !was.LastTransitionTime.IsZero() {
			return was.LastTransitionTime
		}
	}
	return metav1.NewTime(now).Rfc3339Copy()
}

func requiredCondition(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider.Provider, fault string) offloadingv1alpha1.RemoteNamespaceCondition {
	is := offloadingv1alpha1.RemoteNamespaceCondition{
		Type: offloadingv1alpha1.ConditionOffloadingRequired, Status: corev1.ConditionTrue, Reason: offloadingv1alpha1.ReasonClusterSelected,
		Message: "the cluster selector selects this cluster",
	}
	if provider.Chooses(offloading, p) {
		if fault != "" {
			is.Message = "selected before; " + fault
		}
		return is
	}
	is.Status, is.Reason = corev1.ConditionFalse, offloadingv1alpha1.ReasonClusterNotSelected
	switch {
	case offloading.DeletionTimestamp != nil:
		is.Message = "the namespace is no longer offloaded"
	case fault != "":
		is.Message = fault + "; correct it with: kubectl edit namespaceoffloading -n " + offloading.Namespace + " " + offloading.Name
	case p.Leaving:
		is.Message = "the peering with this cluster is ending"
	case !p.Settled():
		is.Message = fmt.Sprintf("virtual node %s does not exist yet, or has no labels yet; see: liqoctl status peer", p.NodeName)
	case p.Allows != nil && provider.Fits(offloading, p) && provider.Leads(offloading, p):
		is.Message = "the cluster may not receive this namespace: spec.namespaceSelector of its ForeignCluster does not select the namespace's labels"
	default:
		is.Message = fmt.Sprintf("the cluster selector does not select virtual node %s; its labels: kubectl get node %[1]s --show-labels", p.NodeName)
	}
	return is
}

// readyCondition returns nil if there is no remote namespace and none is requested.
func readyCondition(namespace, name string, p *provider.Provider, required bool) *offloadingv1alpha1.RemoteNamespaceCondition {
	reported := p.Reported(namespace)
	if !required && !p.Holds(namespace) {
		return nil
	}
	is := &offloadingv1alpha1.RemoteNamespaceCondition{Type: offloadingv1alpha1.ConditionReady, Status: corev1.ConditionFalse}
	silent := ""
	if !p.Answers() {
		silent = "; the cluster does not answer, see: liqoctl status peer"
	}
	switch {
	case !required:
		is.Reason, is.Message = offloadingv1alpha1.ReasonTerminating, "the remote namespace is being deleted"+silent
	case reported == nil || reported.RemoteNamespace != name && reported.Phase != vkv1alpha1.MappingCreationLoopBackOff:
		is.Reason, is.Message = offloadingv1alpha1.ReasonCreating, "the remote cluster is asked to create namespace "+name+silent
	case reported.Phase == vkv1alpha1.MappingAccepted:
		is.Status, is.Reason, is.Message = corev1.ConditionTrue, offloadingv1alpha1.ReasonNamespaceCreated, "namespace "+name+" exists"
	case reported.Phase == vkv1alpha1.MappingTerminating:
		is.Reason, is.Message = offloadingv1alpha1.ReasonTerminating,
			"namespace "+name+" is being deleted in the remote cluster, and is created again when it is gone"
		if reported.Message != "" {
			is.Message = "namespace " + name + ": " + reported.Message
		}
	default:
		is.Reason, is.Message = offloadingv1alpha1.ReasonCreationLoopBackOff, reported.Message
		if is.Message == "" {
			is.Message = "the remote cluster cannot create namespace " + name +
				" and reports no reason; see there: kubectl -n liqo logs deployment/liqo-controller-manager"
		}
	}
	return is
}

// offloadingPhase returns the first documented phase that matches the conditions.
func offloadingPhase(deleted bool, all map[string]offloadingv1alpha1.RemoteNamespaceConditions) offloadingv1alpha1.OffloadingPhase {
	required, ready, failed := 0, 0, 0
	for _, conditions := range all {
		var wanted, is, fails bool
		for _, condition := range conditions {
			switch condition.Type {
			case offloadingv1alpha1.ConditionOffloadingRequired:
				wanted = condition.Status == corev1.ConditionTrue
			case offloadingv1alpha1.ConditionReady:
				is, fails = condition.Status == corev1.ConditionTrue, condition.Reason == offloadingv1alpha1.ReasonCreationLoopBackOff
			}
		}
		if !wanted {
			continue
		}
		required++
		if is {
			ready++
		}
		if fails {
			failed++
		}
	}
	switch {
	case deleted:
		return offloadingv1alpha1.OffloadingTerminating
	case required == 0:
		return offloadingv1alpha1.OffloadingNoClusterSelected
	case ready == required:
		return offloadingv1alpha1.OffloadingReady
	case failed == required:
		return offloadingv1alpha1.OffloadingAllFailed
	case failed > 0:
		return offloadingv1alpha1.OffloadingSomeFailed
	}
	return offloadingv1alpha1.OffloadingInProgress
}

// Deadlines of the end of an offloading.
const (
	// endDeadline is for providers that answer, silentEndDeadline for the others. `liqoctl unoffload` waits 120 s.
	endDeadline       = 100 * time.Second
	silentEndDeadline = 25 * time.Second
)

// waitFor returns how long the end of an offloading still waits for its remote namespaces, and the names of the clusters that still have one.
func waitFor(offloading *offloadingv1alpha1.NamespaceOffloading, providers []provider.Provider, now time.Time) (wait time.Duration, left []string) {
	began := offloading.DeletionTimestamp.Time
	for i := range providers {
		p := &providers[i]
		if !p.Holds(offloading.Namespace) {
			continue
		}
		left = append(left, p.Name)
		deadline := silentEndDeadline
		if p.Answers() {
			deadline = endDeadline
		}
		wait = max(wait, began.Add(deadline).Sub(now))
	}
	return wait, left
}

// leftoverMessage describes the remote namespaces that were not deleted before the deadline.
func leftoverMessage(namespace, name string, left []string) string {
	return fmt.Sprintf("namespace %s may be left in %s, with the remote pods of namespace %s: it was not deleted in time. "+
		"It is deleted when that cluster answers again, or when the peering ends there", name, strings.Join(left, ", "), namespace)
}
