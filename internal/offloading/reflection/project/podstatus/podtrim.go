// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

const (
	// maxPodStatus bounds the status of a remote pod that is cached, in bytes. A container of an honest one takes less than two kilobytes.
	maxPodStatus = 256 << 10
	// maxContainers bounds each list of container statuses, maxMounts the volume mounts of each.
	maxContainers, maxMounts = 256, 256
)

// Trim drops from the status of a remote pod what Of does not read, and bounds what it reads: the peer decides how long texts and lists are. The
// status of the local pod stays the same, unless the remote one is so large that it is no kubelet's: then it has no containers.
func Trim(status *corev1.PodStatus) {
	status.HostIP, status.HostIPs, status.NominatedNodeName, status.QOSClass = "", nil, "", ""
	status.ResourceClaimStatuses, status.ExtendedResourceClaimStatus, status.NodeAllocatableResourceClaimStatuses = nil, nil, nil
	status.Phase = word(status.Phase)
	status.Reason, status.Message = project.Text(status.Reason, project.MaxReason), project.Text(status.Message, maxMessage)
	status.PodIP, status.PodIPs = word(status.PodIP), slices.Clone(status.PodIPs[:min(len(status.PodIPs), maxAddresses)])
	for i := range status.PodIPs {
		status.PodIPs[i].IP = word(status.PodIPs[i].IP)
	}
	status.Conditions = trimConditions(status.Conditions)
	status.InitContainerStatuses = trimContainers(status.InitContainerStatuses)
	status.ContainerStatuses = trimContainers(status.ContainerStatuses)
	status.EphemeralContainerStatuses = trimContainers(status.EphemeralContainerStatuses)
	if status.Size() > maxPodStatus {
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses = nil, nil, nil
		status.AllocatedResources, status.Resources = nil, nil
	}
}

// maxWord bounds what is compared, and therefore not cut.
const maxWord = 512

// word returns a word, or one that has no meaning in place of a long one.
func word[T ~string](text T) T {
	if len(text) > maxWord {
		return "?"
	}
	return text
}

// trimConditions keeps in addition the condition that shows whether a pod has ended for good.
func trimConditions(all []corev1.PodCondition) (kept []corev1.PodCondition) {
	for i := range all {
		if condition := all[i]; len(kept) < maxConditions || len(kept) == maxConditions && condition.Type == corev1.DisruptionTarget {
			condition.Type, condition.Status = word(condition.Type), word(condition.Status)
			condition.Reason, condition.Message = project.Text(condition.Reason, project.MaxReason), project.Text(condition.Message, maxMessage)
			kept = append(kept, condition)
		}
	}
	return kept
}

func trimContainers(all []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, container := range all[:min(len(all), maxContainers)] {
		container.Name, container.AllocatedResourcesStatus = word(container.Name), nil
		container.State, container.LastTerminationState = containerState(container.State), containerState(container.LastTerminationState)
		container.Image, container.ImageID, container.ContainerID = project.Text(container.Image, maxMessage), project.Text(container.ImageID, maxMessage),
			project.Text(container.ContainerID, project.MaxReason)
		container.User = containerUser(container.User)
		container.VolumeMounts = slices.Clone(container.VolumeMounts[:min(len(container.VolumeMounts), maxMounts)])
		kept = append(kept, container)
	}
	return kept
}
