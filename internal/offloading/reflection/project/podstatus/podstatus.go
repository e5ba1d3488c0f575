// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Limits of what we accept from a peer about a pod.
const (
	maxMessage    = 4096
	maxConditions = 32
	maxAddresses  = 8
)

// kubeletConditions are set only by the kubelet that runs a pod: if the remote pod has none, the local pod has none.
var kubeletConditions = []corev1.PodConditionType{
	corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// Facts are what the status of a pod that runs in the peer follows from.
type Facts struct {
	Mapping project.NamespaceMapping
	// Local and Remote are the pod in both clusters. Without the remote one, the status does not change.
	Local, Remote *corev1.Pod
	// Restarts are those before the remote pod.
	Restarts Restarts
	// Translator translates its addresses; nil: the status has none.
	Translator project.Translator
	// HostIP is the address of its node; empty: the status has none.
	HostIP string
}

// Of returns the status of a local pod that runs in the peer; that of one that has finished does not change. The error means that an address cannot be
// translated yet: the caller must not write a status until it can be. It does not occur for a pod that has ended or is being deleted.
func Of(f Facts) (corev1.PodStatus, error) {
	local, remote, mine := f.Local, f.Remote, f.Local.Status.DeepCopy()
	if remote == nil || podphase.Final(mine.Phase) {
		return *mine, nil
	}
	theirs := &remote.Status
	addresses, err := localAddresses(theirs, f.Translator)
	switch {
	case err != nil && (podphase.Final(theirs.Phase) || local.DeletionTimestamp != nil):
		addresses = mine.PodIPs // no client reaches it any more, and reporting its end must not wait
	case err != nil:
		return corev1.PodStatus{}, fmt.Errorf("translate the address of pod %s in %s: %w", remote.Name, f.Mapping.Remote, err)
	}
	status := corev1.PodStatus{
		Phase: phase(theirs.Phase), Reason: reason(theirs.Reason), Message: project.Text(theirs.Message, maxMessage),
		Conditions: conditions(f.Mapping, local, remote), ObservedGeneration: observedGeneration(local, remote),
		StartTime: mine.StartTime, PodIPs: addresses, HostIP: f.HostIP,
		// These belong to the local pod: its class follows from its own requests, and controllers of this cluster reserve the rest.
		QOSClass: mine.QOSClass, NominatedNodeName: mine.NominatedNodeName, ResourceClaimStatuses: mine.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: mine.ExtendedResourceClaimStatus, NodeAllocatableResourceClaimStatuses: mine.NodeAllocatableResourceClaimStatuses,
	}
	if len(addresses) > 0 {
		status.PodIP = addresses[0].IP
	}
	if f.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: f.HostIP}}
	}
	if status.StartTime == nil && theirs.StartTime != nil {
		if start := project.Moment(*theirs.StartTime); !start.IsZero() {
			status.StartTime = &start
		}
	}
	if own := local.Spec.Resources; own != nil {
		status.AllocatedResources = within(theirs.AllocatedResources, own.Requests, mine.AllocatedResources)
		status.Resources = resourcesWithin(theirs.Resources, own, mine.Resources)
	}
	containers := func(spec []corev1.Container, mine, theirs []corev1.ContainerStatus) []corev1.ContainerStatus {
		return containerStatuses(local.Spec.RestartPolicy, spec, statuses{mine, theirs, f.Restarts})
	}
	status.InitContainerStatuses = containers(local.Spec.InitContainers, mine.InitContainerStatuses, theirs.InitContainerStatuses)
	status.ContainerStatuses = containers(local.Spec.Containers, mine.ContainerStatuses, theirs.ContainerStatuses)
	status.EphemeralContainerStatuses = containers(ephemeral(&local.Spec), mine.EphemeralContainerStatuses, theirs.EphemeralContainerStatuses)
	return status, nil
}

// reason leaves out the reasons with which this cluster reports that a pod does not run in the peer: decisions follow from them.
func reason(remote string) string {
	switch found := project.Text(remote, project.MaxReason); found {
	case OffloadingBackOff, OffloadingAborted, PredecessorEnding:
		return ""
	default:
		return found
	}
}

func phase(remote corev1.PodPhase) corev1.PodPhase {
	switch remote {
	case corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		return remote
	case "":
		return corev1.PodPending
	}
	return corev1.PodUnknown
}

// localAddresses translates the addresses of a remote pod to those that this cluster uses: of each family the first that can be reached.
func localAddresses(remote *corev1.PodStatus, translator project.Translator) ([]corev1.PodIP, error) {
	if translator == nil {
		return nil, nil
	}
	theirs := remote.PodIPs
	if len(theirs) == 0 {
		theirs = []corev1.PodIP{{IP: remote.PodIP}}
	}
	var addresses []corev1.PodIP
	var v4, v6 bool
	for _, ip := range theirs[:min(len(theirs), maxAddresses)] {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil || address.Zone() != "" {
			continue
		}
		local, err := translator.ToLocal(address)
		if errors.Is(err, project.ErrNoCounterpart) {
			continue
		}
		if err != nil {
			return nil, err
		}
		taken := &v6
		if local.Is4() {
			taken = &v4
		}
		if !*taken {
			*taken, addresses = true, append(addresses, corev1.PodIP{IP: local.String()})
		}
	}
	return addresses, nil
}

// conditions returns the remote conditions, and those local ones that no kubelet sets. The controllers behind readiness gates write into the local pod, so the
// pod is Ready if the remote pod is, which has no gates, and all gates are open. It translates the observed generations, which are those of the remote pod.
// DisruptionTarget is a remote condition only once the pod has ended, when Jobs read it: the disruption controller of this cluster resets that of a pod that is
// not being deleted, and each write of ours would make it do so again.
func conditions(m project.NamespaceMapping, local, remote *corev1.Pod) []corev1.PodCondition {
	observed := observedGeneration(local, remote)
	isGate := func(kind corev1.PodConditionType) bool {
		return slices.Contains(local.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: kind})
	}
	var all []corev1.PodCondition
	has := func(kind corev1.PodConditionType) bool {
		return slices.ContainsFunc(all, func(other corev1.PodCondition) bool { return other.Type == kind })
	}
	theirs := remote.Status.Conditions
	for _, condition := range theirs[:min(len(theirs), maxConditions)] {
		if len(validation.IsQualifiedName(string(condition.Type))) > 0 || has(condition.Type) || isGate(condition.Type) ||
			condition.Type == corev1.DisruptionTarget && !podphase.Final(remote.Status.Phase) {
			continue
		}
		if condition.Status != corev1.ConditionTrue && condition.Status != corev1.ConditionFalse {
			condition.Status = corev1.ConditionUnknown
		}
		condition.ObservedGeneration = conditionGeneration(condition, local, remote, observed)
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue && condition.Message != "" {
			condition.Message = m.Spoken(condition.Message) // it counts the nodes of another cluster
		}
		condition.Reason, condition.Message = project.Text(condition.Reason, project.MaxReason), project.Text(condition.Message, maxMessage)
		condition.LastProbeTime, condition.LastTransitionTime = project.Moment(condition.LastProbeTime), project.Moment(condition.LastTransitionTime)
		all = append(all, condition)
	}
	for _, condition := range local.Status.Conditions {
		if !slices.Contains(kubeletConditions, condition.Type) && !has(condition.Type) && condition.Type != PredecessorGone {
			all = append(all, condition)
		}
	}
	if i := slices.IndexFunc(all, func(condition corev1.PodCondition) bool { return condition.Type == corev1.PodReady }); i >= 0 {
		closeGates(&all[i], local.Spec.ReadinessGates, all)
	}
	return all
}

// closeGates makes a condition Ready false if a readiness gate is not open, with the words of a kubelet.
func closeGates(ready *corev1.PodCondition, gates []corev1.PodReadinessGate, all []corev1.PodCondition) {
	if ready.Status != corev1.ConditionTrue {
		return
	}
	var closed []string
	for _, gate := range gates {
		i := slices.IndexFunc(all, func(condition corev1.PodCondition) bool { return condition.Type == gate.ConditionType })
		switch {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
			continue
		case all[i].Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, all[i].Status))
		}
		if all[i].LastTransitionTime.After(ready.LastTransitionTime.Time) {
			ready.LastTransitionTime = all[i].LastTransitionTime
		}
	}
	if len(closed) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
}

func add(a, b int32) int32 {
	if a, b = max(a, 0), max(b, 0); a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}
