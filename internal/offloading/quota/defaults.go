// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// Defaults are what a pod takes of a grant without requesting it. Otherwise a peer would use the nodes with pods that request nothing, or next to nothing.
type Defaults struct {
	// Requests are the least CPU and memory that a container counts with, and what it requests in this cluster if it requests none.
	Requests corev1.ResourceList
	// Limits are those that a LimitRange gives to containers that set none. Of these, the one of ephemeral storage counts.
	Limits corev1.ResourceList
	// MemoryVolume is the size of an emptyDir in memory that has none; zero for no such size.
	MemoryVolume resource.Quantity
}

// defaulted are the resources of which a pod may take more than it requests.
var defaulted = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// extra is how much of the defaulted resources a pod takes beyond what it requests.
type extra [len(defaulted)]int64

// of returns the part of an amount that is extra.
func (e extra) of(name corev1.ResourceName) int64 {
	for i := range defaulted {
		if defaulted[i] == name {
			return e[i]
		}
	}
	return 0
}

// amounts returns the least that a pod takes: the sum over its containers, or its memory volumes if they are larger. The pod's own limits bound both.
func (d Defaults) amounts(spec *corev1.PodSpec) Amounts {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: d.containers(spec.Containers), InitContainers: d.containers(spec.InitContainers)}}
	least := count(resources.PodRequests(pod, resources.PodResourcesOptions{SkipPodLevelResources: true}), maxAmount)
	if sized, unsized := memoryVolumes(spec.Volumes); len(sized)+len(unsized) > 0 {
		raise(least, Amounts{corev1.ResourceMemory: d.size(sized, unsized)})
	}
	if spec.Resources != nil {
		for name, limit := range count(spec.Resources.Limits, maxAmount) {
			if value, ok := least[name]; ok {
				least[name] = min(value, limit)
			}
		}
	}
	return least
}

// containers returns the containers with what each takes at least. What a container has as its limit is more than it can use.
func (d Defaults) containers(from []corev1.Container) []corev1.Container {
	all := requesting(from)
	for i := range all {
		taken, limits := all[i].Resources.Requests, from[i].Resources.Limits
		for name, least := range d.Requests {
			if limit := limits[name]; limit.Sign() > 0 && limit.Cmp(least) < 0 {
				least = limit
			}
			if stated := taken[name]; stated.Cmp(least) < 0 {
				taken[name] = least
			}
		}
		limit := limits[corev1.ResourceEphemeralStorage]
		if limit.Sign() <= 0 {
			limit = d.Limits[corev1.ResourceEphemeralStorage]
		}
		if stated := taken[corev1.ResourceEphemeralStorage]; stated.Cmp(limit) < 0 {
			taken[corev1.ResourceEphemeralStorage] = limit
		}
	}
	return all
}

// memoryVolumes returns the volumes in the memory of the node that have a size, and those that have none. To a kubelet, zero is none.
func memoryVolumes(volumes []corev1.Volume) (sized, unsized []*corev1.EmptyDirVolumeSource) {
	for i := range volumes {
		switch dir := volumes[i].EmptyDir; {
		case dir == nil || dir.Medium != corev1.StorageMediumMemory:
		case dir.SizeLimit != nil && dir.SizeLimit.Sign() > 0:
			sized = append(sized, dir)
		default:
			unsized = append(unsized, dir)
		}
	}
	return sized, unsized
}

// size returns the memory that volumes may have together.
func (d Defaults) size(sized, unsized []*corev1.EmptyDirVolumeSource) (sum int64) {
	for _, volume := range sized {
		sum = min(sum+bytes(*volume.SizeLimit), maxAmount)
	}
	for range unsized {
		sum = min(sum+bytes(d.MemoryVolume), maxAmount)
	}
	return sum
}

func bytes(size resource.Quantity) int64 {
	return count(corev1.ResourceList{corev1.ResourceMemory: size}, maxAmount)[corev1.ResourceMemory]
}

// Fill gives a new pod what it counts with, so that the scheduler reserves it and a volume does not become larger.
func (d Defaults) Fill(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for name, least := range d.Requests {
				if !stated(spec.Resources, name) {
					request(&containers[i].Resources, name, least)
				}
			}
			for name, limit := range d.Limits { // the LimitRange would set a limit below the request, which is invalid
				its := &containers[i].Resources
				if asked, own := its.Requests[name], its.Limits[name]; own.IsZero() && asked.Cmp(limit) > 0 {
					its.Limits = with(its.Limits, name, asked)
				}
			}
		}
	}
	sized, unsized := memoryVolumes(spec.Volumes)
	if len(unsized) == 0 || d.MemoryVolume.Sign() <= 0 {
		return
	}
	// What the pod requests counts already, so that its volumes may have it.
	free := (requests(spec)[corev1.ResourceMemory] - d.size(sized, nil)) / int64(len(unsized))
	for _, volume := range unsized {
		volume.SizeLimit = resource.NewQuantity(max(free, bytes(d.MemoryVolume)), resource.BinarySI)
	}
}

// stated reports whether a pod states its own amount of a resource, which its containers share: what they request must fit into it.
func stated(whole *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	if whole == nil {
		return false
	}
	_, requested := whole.Requests[name]
	_, limited := whole.Limits[name]
	return requested || limited
}

// request gives a container a request if it has none. If it has only a limit, the API server makes that the request. A limit of zero is none, and no
// request fits into it.
func request(of *corev1.ResourceRequirements, name corev1.ResourceName, least resource.Quantity) {
	limit, limited := of.Limits[name]
	asked, requested := of.Requests[name]
	switch {
	case asked.Sign() > 0, limit.Sign() > 0 && !requested:
		return
	case limit.Sign() > 0 && limit.Cmp(least) < 0:
		least = limit
	case limited && limit.IsZero():
		of.Limits = maps.Clone(of.Limits)
		delete(of.Limits, name)
	}
	of.Requests = with(of.Requests, name, least)
}

func with(list corev1.ResourceList, name corev1.ResourceName, value resource.Quantity) corev1.ResourceList {
	changed := maps.Clone(list)
	if changed == nil {
		changed = corev1.ResourceList{}
	}
	changed[name] = value.DeepCopy()
	return changed
}

// why returns why a pod takes more of a resource than it requests.
func (d Defaults) why(name corev1.ResourceName) string {
	least := d.Requests[name]
	switch name {
	case corev1.ResourceMemory:
		return fmt.Sprintf(" (each container counts with %s at least, and a memory volume with its size)", least.String())
	case corev1.ResourceEphemeralStorage:
		limit := d.Limits[name]
		return fmt.Sprintf(" (the limit of each container counts, without one %s)", limit.String())
	}
	return fmt.Sprintf(" (each container counts with %s at least)", least.String())
}
