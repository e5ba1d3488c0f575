// SPDX-License-Identifier: Apache-2.0

package project

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What a peer may say of a pod, at most.
const (
	mostReason     = 256
	mostMessage    = 4096
	mostConditions = 32
	mostAddresses  = 8
)

// ofKubelet are the conditions that only who runs a pod sets: without one in the peer, there is none here.
var ofKubelet = []corev1.PodConditionType{
	corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// PodStatus is how a local pod stands that runs in the peer; a nil remote is no news. A pod that has finished stays so, whatever the peer
// says. Without a translator no address is shown. An error says that an address cannot be told yet: nothing is to be shown until it
// can, unless the pod has ended or is to end.
func PodStatus(m NamespaceMapping, local, remote *corev1.Pod, restarts Restarts, translator Translator, hostIP string) (corev1.PodStatus, error) {
	mine := local.Status.DeepCopy()
	if remote == nil || finished(mine.Phase) {
		return *mine, nil
	}
	theirs := &remote.Status
	addresses, err := home(theirs, translator)
	switch {
	case err != nil && (finished(theirs.Phase) || local.DeletionTimestamp != nil):
		addresses = mine.PodIPs // nobody reaches it any more, and its end must not wait
	case err != nil:
		return corev1.PodStatus{}, fmt.Errorf("address of pod %s in %s: %w", remote.Name, m.Remote, err)
	}
	status := corev1.PodStatus{
		Phase: phase(theirs.Phase), Reason: text(theirs.Reason, mostReason), Message: text(theirs.Message, mostMessage),
		Conditions: conditions(mine.Conditions, theirs.Conditions),
		StartTime:  mine.StartTime, PodIPs: addresses, HostIP: hostIP,
		// These are about the pod here: its class by its own requests, and what this cluster's controllers reserve for it.
		QOSClass: mine.QOSClass, NominatedNodeName: mine.NominatedNodeName, ResourceClaimStatuses: mine.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: mine.ExtendedResourceClaimStatus, NodeAllocatableResourceClaimStatuses: mine.NodeAllocatableResourceClaimStatuses,
	}
	if len(addresses) > 0 {
		status.PodIP = addresses[0].IP
	}
	if hostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: hostIP}}
	}
	if status.StartTime == nil && theirs.StartTime != nil {
		if start := moment(*theirs.StartTime); !start.IsZero() {
			status.StartTime = &start
		}
	}
	if own := local.Spec.Resources; own != nil {
		status.AllocatedResources, status.Resources = within(theirs.AllocatedResources, own.Requests), resourcesWithin(theirs.Resources, own)
	}
	containers := func(spec []corev1.Container, mine, theirs []corev1.ContainerStatus) []corev1.ContainerStatus {
		return containerStatuses(local.Spec.RestartPolicy, spec, statuses{mine, theirs, restarts})
	}
	status.InitContainerStatuses = containers(local.Spec.InitContainers, mine.InitContainerStatuses, theirs.InitContainerStatuses)
	status.ContainerStatuses = containers(local.Spec.Containers, mine.ContainerStatuses, theirs.ContainerStatuses)
	status.EphemeralContainerStatuses = containers(ephemeral(&local.Spec), mine.EphemeralContainerStatuses, theirs.EphemeralContainerStatuses)
	return status, nil
}

func finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
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

// home are the addresses of a remote pod as they are seen here: of each family the first that this cluster has a way to.
func home(remote *corev1.PodStatus, translator Translator) ([]corev1.PodIP, error) {
	if translator == nil {
		return nil, nil
	}
	theirs := remote.PodIPs
	if len(theirs) == 0 {
		theirs = []corev1.PodIP{{IP: remote.PodIP}}
	}
	var addresses []corev1.PodIP
	var v4, v6 bool
	for _, one := range theirs[:min(len(theirs), mostAddresses)] {
		address, err := netip.ParseAddr(one.IP)
		if err != nil || address.Zone() != "" {
			continue
		}
		seen, err := translator.ToLocal(address)
		if errors.Is(err, ErrNoCounterpart) {
			continue
		}
		if err != nil {
			return nil, err
		}
		taken := &v6
		if seen.Is4() {
			taken = &v4
		}
		if !*taken {
			*taken, addresses = true, append(addresses, corev1.PodIP{IP: seen.String()})
		}
	}
	return addresses, nil
}

// conditions are those of the peer, and of ours those that no kubelet sets. The generations they speak of are not this pod's.
func conditions(mine, theirs []corev1.PodCondition) []corev1.PodCondition {
	var all []corev1.PodCondition
	has := func(kind corev1.PodConditionType) bool {
		return slices.ContainsFunc(all, func(other corev1.PodCondition) bool { return other.Type == kind })
	}
	for _, condition := range theirs[:min(len(theirs), mostConditions)] {
		if len(validation.IsQualifiedName(string(condition.Type))) > 0 || has(condition.Type) {
			continue
		}
		if condition.Status != corev1.ConditionTrue && condition.Status != corev1.ConditionFalse {
			condition.Status = corev1.ConditionUnknown
		}
		condition.ObservedGeneration = 0
		condition.Reason, condition.Message = text(condition.Reason, mostReason), text(condition.Message, mostMessage)
		condition.LastProbeTime, condition.LastTransitionTime = moment(condition.LastProbeTime), moment(condition.LastTransitionTime)
		all = append(all, condition)
	}
	for _, condition := range mine {
		if !slices.Contains(ofKubelet, condition.Type) && !has(condition.Type) {
			all = append(all, condition)
		}
	}
	return all
}

// text is what somebody else wrote: of bounded size, and without what moves the cursor of a terminal.
func text(theirs string, most int) string {
	if len(theirs) > most {
		end := most - len("…")
		for end > 0 && !utf8.RuneStart(theirs[end]) {
			end--
		}
		theirs = theirs[:end] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || r == utf8.RuneError) {
			return -1
		}
		return r
	}, theirs)
}

// moment is a time that has a text form.
func moment(theirs metav1.Time) metav1.Time {
	if year := theirs.UTC().Year(); year < 1970 || year > 9999 {
		return metav1.Time{}
	}
	return theirs
}

func add(a, b int32) int32 {
	if a, b = max(a, 0), max(b, 0); a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}
