// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// offloadingStatus is what a NamespaceOffloading says of itself.
func offloadingStatus(offloading *offloadingv1alpha1.NamespaceOffloading, name string, providers []provider, now time.Time) offloadingv1alpha1.NamespaceOffloadingStatus {
	status := offloadingv1alpha1.NamespaceOffloadingStatus{
		RemoteNamespaceName: name, ObservedGeneration: offloading.Generation,
		RemoteNamespacesConditions: map[string]offloadingv1alpha1.RemoteNamespaceConditions{},
	}
	fault := checkSelector(&offloading.Spec.ClusterSelector)
	for i := range providers {
		p := &providers[i]
		required := requiredCondition(offloading, p, fault)
		if p.leaving && required.Status == corev1.ConditionFalse && !p.holds(offloading.Namespace) {
			continue // as if there were no such cluster
		}
		all := offloadingv1alpha1.RemoteNamespaceConditions{required}
		if ready := readyCondition(offloading.Namespace, name, p, required.Status == corev1.ConditionTrue); ready != nil {
			all = append(all, *ready)
		}
		before := offloading.Status.RemoteNamespacesConditions[p.name]
		for i := range all {
			all[i].LastTransitionTime = since(before, all[i], now)
		}
		status.RemoteNamespacesConditions[p.name] = all
	}
	status.OffloadingPhase = offloadingPhase(offloading.DeletionTimestamp != nil, status.RemoteNamespacesConditions)
	return status
}

// since keeps the time of a condition that has not changed its status.
func since(before offloadingv1alpha1.RemoteNamespaceConditions, is offloadingv1alpha1.RemoteNamespaceCondition, now time.Time) metav1.Time {
	for _, was := range before {
		if was.Type == is.Type && was.Status == is.Status && !was.LastTransitionTime.IsZero() {
			return was.LastTransitionTime
		}
	}
	return metav1.NewTime(now).Rfc3339Copy()
}

func requiredCondition(offloading *offloadingv1alpha1.NamespaceOffloading, p *provider, fault string) offloadingv1alpha1.RemoteNamespaceCondition {
	is := offloadingv1alpha1.RemoteNamespaceCondition{
		Type: offloadingv1alpha1.ConditionOffloadingRequired, Status: corev1.ConditionTrue, Reason: offloadingv1alpha1.ReasonClusterSelected,
		Message: "the cluster selector chooses this cluster",
	}
	if chooses(offloading, p) {
		if fault != "" {
			is.Message = "chosen before; " + fault
		}
		return is
	}
	is.Status, is.Reason = corev1.ConditionFalse, offloadingv1alpha1.ReasonClusterNotSelected
	switch {
	case offloading.DeletionTimestamp != nil:
		is.Message = "the namespace is not offloaded any more"
	case fault != "":
		is.Message = fault + "; correct it with: kubectl edit namespaceoffloading -n " + offloading.Namespace + " " + offloading.Name
	case p.leaving:
		is.Message = "the peering with this cluster is ending"
	case !p.settled():
		is.Message = fmt.Sprintf("virtual node %s is not there yet, or its labels are not known; see: liqoctl status peer", p.nodeName)
	default:
		is.Message = fmt.Sprintf("the cluster selector does not choose virtual node %s; its labels: kubectl get node %[1]s --show-labels", p.nodeName)
	}
	return is
}

// readyCondition is nil if there is no twin and none is wanted.
func readyCondition(namespace, name string, p *provider, required bool) *offloadingv1alpha1.RemoteNamespaceCondition {
	said := p.said(namespace)
	if !required && !p.holds(namespace) {
		return nil
	}
	is := &offloadingv1alpha1.RemoteNamespaceCondition{Type: offloadingv1alpha1.ConditionReady, Status: corev1.ConditionFalse}
	silent := ""
	if !p.answers() {
		silent = "; the cluster does not answer now, see: liqoctl status peer"
	}
	switch {
	case !required:
		is.Reason, is.Message = offloadingv1alpha1.ReasonTerminating, "the remote namespace is being deleted"+silent
	case said == nil || said.RemoteNamespace != name && said.Phase != vkv1alpha1.MappingCreationLoopBackOff:
		is.Reason, is.Message = offloadingv1alpha1.ReasonCreating, "the remote cluster is asked for namespace "+name+silent
	case said.Phase == vkv1alpha1.MappingAccepted:
		is.Status, is.Reason, is.Message = corev1.ConditionTrue, offloadingv1alpha1.ReasonNamespaceCreated, "namespace "+name+" is there"
	case said.Phase == vkv1alpha1.MappingTerminating:
		is.Reason, is.Message = offloadingv1alpha1.ReasonTerminating, "namespace "+name+" is being deleted in the remote cluster, and is made again when it is gone"
	default:
		is.Reason, is.Message = offloadingv1alpha1.ReasonCreationLoopBackOff, said.Message
		if is.Message == "" {
			is.Message = "the remote cluster cannot make namespace " + name + " and does not say why; there, look at: kubectl -n liqo logs deployment/liqo-controller-manager"
		}
	}
	return is
}

// offloadingPhase sums conditions up, as documented: the first that fits.
func offloadingPhase(deleted bool, all map[string]offloadingv1alpha1.RemoteNamespaceConditions) offloadingv1alpha1.OffloadingPhase {
	required, ready, failed := 0, 0, 0
	for _, conditions := range all {
		var wanted, is, fails bool
		for _, one := range conditions {
			switch one.Type {
			case offloadingv1alpha1.ConditionOffloadingRequired:
				wanted = one.Status == corev1.ConditionTrue
			case offloadingv1alpha1.ConditionReady:
				is, fails = one.Status == corev1.ConditionTrue, one.Reason == offloadingv1alpha1.ReasonCreationLoopBackOff
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
	// endTime is what providers that answer get, silentEndTime what the others get. `liqoctl unoffload` waits 120 s.
	endTime       = 100 * time.Second
	silentEndTime = 25 * time.Second
)

// waitFor says how long the end of an offloading still waits for its twins; zero for no longer. left are the clusters that hold it up.
func waitFor(offloading *offloadingv1alpha1.NamespaceOffloading, providers []provider, now time.Time) (wait time.Duration, left []string) {
	began := offloading.DeletionTimestamp.Time
	for i := range providers {
		p := &providers[i]
		if !p.holds(offloading.Namespace) {
			continue
		}
		left = append(left, p.name)
		patience := silentEndTime
		if p.answers() {
			patience = endTime
		}
		wait = max(wait, began.Add(patience).Sub(now))
	}
	return wait, left
}

// leftTwins tells people what a deadline left over there.
func leftTwins(namespace, name string, left []string) string {
	return fmt.Sprintf("namespace %s may be left in %s, with what runs there for namespace %s: it was not gone in time. "+
		"It is deleted when that cluster answers again, or when the peering ends over there", name, strings.Join(left, ", "), namespace)
}
