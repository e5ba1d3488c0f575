// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// resizable is what can change of a pod that runs.
var resizable = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// sized returns what a ShadowPod asks for, with the CPU and memory that its pod has. Containers that others added to the pod do not count here either.
func sized(asked, pod *corev1.PodSpec) *corev1.PodSpec {
	is := *asked
	is.Containers, is.InitContainers = sizedContainers(asked.Containers, pod.Containers), sizedContainers(asked.InitContainers, pod.InitContainers)
	if asked.Resources != nil && pod.Resources != nil {
		whole := sizes(asked.Resources, pod.Resources)
		is.Resources = &whole
	}
	return &is
}

func sizedContainers(asked, has []corev1.Container) (all []corev1.Container) {
	for _, item := range asked {
		for i := range has {
			if has[i].Name == item.Name {
				item.Resources = sizes(&item.Resources, &has[i].Resources)
			}
		}
		all = append(all, item)
	}
	return all
}

func sizes(asked, has *corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: size(asked.Requests, has.Requests), Limits: size(asked.Limits, has.Limits)}
}

func size(asked, has corev1.ResourceList) corev1.ResourceList {
	list := make(corev1.ResourceList, len(asked))
	maps.Copy(list, asked)
	for _, name := range resizable {
		delete(list, name)
		if quantity, ok := has[name]; ok {
			list[name] = quantity
		}
	}
	return list
}
