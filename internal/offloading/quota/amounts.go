// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// unlimited names a container without limits: its use cannot be counted.
func unlimited(spec *corev1.PodSpec) string {
	for list, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if limit, ok := containers[i].Resources.Limits[name]; !ok || limit.Sign() <= 0 {
					return fmt.Sprintf("spec.pod.%s[%d] (%.63s) has no limit for %s: this provider enforces what it grants, so every container needs "+
						"limits for cpu and memory",
						list, i, containers[i].Name, name)
				}
			}
		}
	}
	return ""
}

// requests returns what the scheduler will reserve for a pod. A resource of which the pod states only a limit counts with the limit: the API server
// sets the request to it when the pod is created. A pod without requests reserves nothing but a place among the pods.
func requests(spec *corev1.PodSpec) Amounts {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: requesting(spec.Containers), InitContainers: requesting(spec.InitContainers)}}
	amounts := count(resources.PodRequests(pod, resources.PodResourcesOptions{SkipPodLevelResources: true}), maxAmount)
	if spec.Resources != nil {
		least := count(spec.Resources.Requests, maxAmount)
		for name, limit := range count(spec.Resources.Limits, maxAmount) {
			if _, stated := spec.Resources.Requests[name]; !stated && amounts[name] == 0 {
				least[name] = limit
			}
		}
		raise(amounts, least)
	}
	amounts[corev1.ResourcePods] = 1
	return amounts
}

// requesting returns the containers with the requests that the API server will give them.
func requesting(containers []corev1.Container) []corev1.Container {
	all := make([]corev1.Container, len(containers))
	for i := range containers {
		from := &containers[i].Resources
		stated := make(corev1.ResourceList, len(from.Limits))
		maps.Copy(stated, from.Limits)
		maps.Copy(stated, from.Requests)
		all[i] = corev1.Container{Name: containers[i].Name, RestartPolicy: containers[i].RestartPolicy, Resources: corev1.ResourceRequirements{Requests: stated}}
	}
	return all
}

// limits returns the most that a pod may use: the sum over its containers as the scheduler computes it, or the pod-level resources where
// these are more. The node lets the containers together use the pod-level limits, and the scheduler reserves the pod-level requests,
// whatever the sum is.
func limits(spec *corev1.PodSpec) Amounts {
	amounts := count(resources.PodLimits(&corev1.Pod{Spec: *spec}, resources.PodResourcesOptions{SkipPodLevelResources: true}), maxAmount)
	if spec.Resources != nil {
		raise(amounts, count(spec.Resources.Limits, maxAmount))
		raise(amounts, count(spec.Resources.Requests, maxAmount))
	}
	amounts[corev1.ResourcePods] = 1
	return amounts
}

// raise sets each amount to at least that of least.
func raise(amounts, least Amounts) {
	for name, value := range least {
		amounts[name] = max(amounts[name], value)
	}
}

// count converts quantities to amounts, each at most most. Negative ones count nothing.
func count(list corev1.ResourceList, most int64) Amounts {
	amounts := make(Amounts, len(list)+1)
	for name, quantity := range list {
		limit, value := resource.NewQuantity(most, resource.DecimalSI), quantity.Value
		if name == corev1.ResourceCPU {
			limit, value = resource.NewMilliQuantity(most, resource.DecimalSI), quantity.MilliValue
		}
		switch {
		case quantity.Sign() <= 0:
		case quantity.Cmp(*limit) >= 0:
			amounts[name] = most
		default:
			amounts[name] = value()
		}
	}
	return amounts
}

func text(name corev1.ResourceName, value int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(value, resource.DecimalSI).String()
	case cmp.Compare(name, corev1.ResourceMemory) == 0 || strings.HasSuffix(string(name), "storage"):
		return resource.NewQuantity(value, resource.BinarySI).String()
	default:
		return resource.NewQuantity(value, resource.DecimalSI).String()
	}
}
