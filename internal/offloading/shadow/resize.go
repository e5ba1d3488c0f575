// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// resizable are the resources that Kubernetes changes in a running pod.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// Resize returns the resources of a pod with the CPU and memory of others. It changes neither, and removes nothing: Kubernetes does not remove a
// request or limit from a running pod.
func Resize(from, to *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	result := from.DeepCopy()
	for _, lists := range []struct {
		result *corev1.ResourceList
		to     corev1.ResourceList
	}{{&result.Requests, to.Requests}, {&result.Limits, to.Limits}} {
		for _, name := range resizable {
			quantity, ok := lists.to[name]
			if !ok {
				continue
			}
			if *lists.result == nil {
				*lists.result = corev1.ResourceList{}
			}
			if before, ok := (*lists.result)[name]; !ok || before.Cmp(quantity) != 0 {
				(*lists.result)[name] = quantity.DeepCopy()
			}
		}
	}
	return result
}

// Resized reports whether an update of a ShadowPod changes its resources.
func Resized(before, after *vkv1alpha1.ShadowPod) bool {
	differ := func(a, b *corev1.ResourceRequirements) bool {
		return len(changed(a.Requests, b.Requests))+len(changed(a.Limits, b.Limits)) > 0
	}
	old, now := &before.Spec.Pod, &after.Spec.Pod
	for _, lists := range [][2][]corev1.Container{{old.Containers, now.Containers}, {old.InitContainers, now.InitContainers}} {
		for i := range min(len(lists[0]), len(lists[1])) {
			if differ(&lists[0][i].Resources, &lists[1][i].Resources) {
				return true
			}
		}
	}
	return old.Resources != nil && now.Resources != nil && differ(old.Resources, now.Resources)
}

// changed returns the CPU and memory of the desired list that differ from those that are there. Nothing is desired by a zero: a new pod gets a
// default instead, which a running one keeps.
func changed(is, desired corev1.ResourceList) corev1.ResourceList {
	different := corev1.ResourceList{}
	for _, name := range resizable {
		quantity, ok := desired[name]
		if before, has := is[name]; ok && !quantity.IsZero() && (!has || before.Cmp(quantity) != 0) {
			different[name] = quantity
		}
	}
	return different
}

// restore undoes changes of CPU and memory that a running pod may have. What was removed stays removed.
func restore(before, now *corev1.ResourceRequirements) {
	for _, lists := range [][2]corev1.ResourceList{{before.Requests, now.Requests}, {before.Limits, now.Limits}} {
		for _, name := range resizable {
			if _, ok := lists[1][name]; !ok {
				continue
			}
			if quantity, had := lists[0][name]; had {
				lists[1][name] = quantity
			} else {
				delete(lists[1], name)
			}
		}
	}
}

// resize returns the patch of the subresource that changes CPU and memory of a running pod. It ignores containers, requests and limits that other
// controllers added. sent returns whether a field is to be sent.
func resize(desired *corev1.PodSpec, pod *corev1.Pod, sent func(string) bool) (ops []Op) {
	for _, lists := range []struct {
		at          string
		desired, is []corev1.Container
	}{{"/spec/containers/", desired.Containers, pod.Spec.Containers}, {"/spec/initContainers/", desired.InitContainers, pod.Spec.InitContainers}} {
		for i := range lists.is {
			for j := range lists.desired {
				if lists.desired[j].Name != lists.is[i].Name {
					continue
				}
				path := lists.at + strconv.Itoa(i)
				if sizes := sizesOf(path+"/resources", &lists.desired[j].Resources, &lists.is[i].Resources, amountsOf(lists.is[i].Name, sent)); len(sizes) > 0 {
					ops = append(append(ops, Op{"test", path + "/name", lists.is[i].Name}), sizes...)
				}
			}
		}
	}
	if desired.Resources != nil && pod.Spec.Resources != nil {
		ops = append(ops, sizesOf("/spec/resources", desired.Resources, pod.Spec.Resources, amountsOf("", sent))...)
	}
	return ops
}

// amountsOf returns whether an amount of a container in a list is to be sent.
func amountsOf(container string, sent func(string) bool) func(list string, resource corev1.ResourceName) bool {
	return func(list string, resource corev1.ResourceName) bool {
		return sent(amountName(container, list, resource))
	}
}

func sizesOf(at string, desired, is *corev1.ResourceRequirements, sent func(string, corev1.ResourceName) bool) (ops []Op) {
	requests, limits := changed(is.Requests, desired.Requests), changed(is.Limits, desired.Limits)
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return !sent(requestsList, name) })
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool { return !sent(limitsList, name) })
	if len(requests)+len(limits) == 0 {
		return nil
	}
	if len(is.Requests)+len(is.Limits)+len(is.Claims) == 0 { // in JSON, the field may be missing
		return []Op{{"add", at, corev1.ResourceRequirements{Requests: requests, Limits: limits}}}
	}
	for _, list := range []struct {
		at          string
		is, changed corev1.ResourceList
	}{{at + "/requests", is.Requests, requests}, {at + "/limits", is.Limits, limits}} {
		if len(list.is) == 0 && len(list.changed) > 0 {
			ops = append(ops, Op{"add", list.at, list.changed})
			continue
		}
		for _, name := range resizable {
			if quantity, ok := list.changed[name]; ok {
				ops = append(ops, Op{"add", list.at + "/" + string(name), quantity.String()})
			}
		}
	}
	return ops
}

// size is what a container, or the pod itself if the name is empty, requests and may use.
type size struct {
	Name             string
	Requests, Limits corev1.ResourceList
}

// sizes returns the part of a revision that a resize changes. A ShadowPod that was never changed has none, so that pods of earlier versions of Liqo
// keep their revision.
func sizes(shadow *vkv1alpha1.ShadowPod) (all []size) {
	if shadow.Generation <= 1 {
		return nil
	}
	spec := &shadow.Spec.Pod
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			all = append(all, size{containers[i].Name, containers[i].Resources.Requests, containers[i].Resources.Limits})
		}
	}
	if spec.Resources != nil {
		all = append(all, size{"", spec.Resources.Requests, spec.Resources.Limits})
	}
	return all
}
