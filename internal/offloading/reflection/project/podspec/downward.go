// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Fields of a pod that a container may read by the downward API.
const (
	fieldNamespace, fieldUID       = "metadata.namespace", "metadata.uid"
	fieldLabels, fieldAnnotations  = "metadata.labels", "metadata.annotations"
	fieldAccount                   = "spec.serviceAccountName"
	fieldNode, fieldNodeDeprecated = "spec.nodeName", "spec.host"
)

// mostAnnotations bounds all annotations of a ShadowPod together with those that carry fields. Kubernetes allows 256
// KiB for an object, of which the peer needs some.
const mostAnnotations = 224 << 10

// downward gives the containers of a remote pod what the downward API of this cluster gives: see docs/adr/0039-who-a-pod-is.md. A variable gets a literal value
// if it can not change. What a literal cannot express is in an annotation of the remote pod (labels.Downward), which the container reads by the same API.
type downward struct {
	local *corev1.Pod
	// labels and annotations are those that may leave this cluster.
	labels, annotations map[string]string
	// carried are the annotations, listed reports whether one lists all of the pod's annotations.
	carried map[string]string
	listed  bool
	node    string
}

// newDownward returns the fields of a pod.
func newDownward(m project.NamespaceMapping, local *corev1.Pod) *downward {
	return &downward{
		local: local, node: m.NodeName, carried: map[string]string{},
		labels: project.Without(local.Labels, m.Skip.Labels, labels.ShadowPod), annotations: project.Without(local.Annotations, m.Skip.Annotations),
	}
}

// rewrite changes what containers and volumes of the remote pod refer to.
func (d *downward) rewrite(spec *corev1.PodSpec) {
	eachContainer(spec, func(container *corev1.Container) {
		for i := range container.Env {
			switch from := container.Env[i].ValueFrom; {
			case from == nil:
			case from.FieldRef != nil:
				d.variable(&container.Env[i])
			case from.ResourceFieldRef != nil && d.requestsNothing(from.ResourceFieldRef, container.Name):
				container.Env[i].Value, container.Env[i].ValueFrom = "0", nil
			}
		}
	})
	eachFile(spec, func(file *corev1.DownwardAPIVolumeFile) {
		switch {
		case file.FieldRef != nil:
			d.field(file.FieldRef)
		case file.ResourceFieldRef != nil && d.requestsNothing(file.ResourceFieldRef, ""):
			file.FieldRef, file.ResourceFieldRef = &corev1.ObjectFieldSelector{APIVersion: "v1"}, nil
			d.carry(file.FieldRef, "nothing", "0")
		}
	})
}

// requestsNothing reports whether a container reads a request that it does not have. The peer gives it one by default.
func (d *downward) requestsNothing(ref *corev1.ResourceFieldSelector, reader string) bool {
	resource, ok := strings.CutPrefix(ref.Resource, "requests.")
	if !ok || d.local.Spec.Resources != nil {
		return false
	}
	nothing, of := false, cmp.Or(ref.ContainerName, reader)
	for _, containers := range [][]corev1.Container{d.local.Spec.InitContainers, d.local.Spec.Containers} {
		for i := range containers {
			_, has := containers[i].Resources.Requests[corev1.ResourceName(resource)]
			_, limited := containers[i].Resources.Limits[corev1.ResourceName(resource)]
			nothing = nothing || containers[i].Name == of && !has && !limited
		}
	}
	return nothing
}

// eachFile calls do for each file that the downward API makes in a volume.
func eachFile(spec *corev1.PodSpec, do func(*corev1.DownwardAPIVolumeFile)) {
	all := func(files []corev1.DownwardAPIVolumeFile) {
		for i := range files {
			do(&files[i])
		}
	}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.DownwardAPI != nil {
			all(volume.DownwardAPI.Items)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				all(source.DownwardAPI.Items)
			}
		}
	}
}

// variable gives a variable its value. None of these values has a $, which would be expanded.
func (d *downward) variable(variable *corev1.EnvVar) {
	literal := ""
	switch variable.ValueFrom.FieldRef.FieldPath {
	case fieldNamespace:
		literal = d.local.Namespace
	case fieldUID:
		literal = string(d.local.UID)
	case fieldAccount:
		literal = ServiceAccountName(d.local)
	case fieldNode, fieldNodeDeprecated:
		literal = d.node
	default:
		d.field(variable.ValueFrom.FieldRef)
		return
	}
	variable.Value, variable.ValueFrom = literal, nil
}

// field lets a container read an annotation instead of a field that differs in the remote pod.
func (d *downward) field(ref *corev1.ObjectFieldSelector) {
	switch ref.FieldPath {
	case fieldNamespace:
		d.carry(ref, "namespace", d.local.Namespace)
	case fieldUID:
		ref.FieldPath = annotationPath(labels.Fence)
	case fieldLabels:
		d.carry(ref, "labels", listing(d.labels, mostAnnotations))
	case fieldAnnotations:
		ref.FieldPath, d.listed = annotationPath(labels.Downward+"annotations"), true
	default:
		from, key, _ := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
		switch {
		case from == fieldAnnotations && key == labels.PodIP:
			d.carryKey(ref, "annotation-", key, address(d.local))
		case from == fieldLabels && (ours.Match(key) || !metadata.KeepsLabel(key)):
			d.carryKey(ref, "label-", key, d.labels)
		case from == fieldAnnotations && (ours.Match(key) || project.LocalAnnotations.Match(key) || !metadata.KeepsAnnotation(key)):
			d.carryKey(ref, "annotation-", key, d.annotations)
		}
	}
}

// address returns the address that this cluster shows for a pod as the annotation of which containers read it; nothing if it does not show one yet.
func address(local *corev1.Pod) map[string]string {
	if local.Status.PodIP == "" {
		return nil
	}
	return map[string]string{labels.PodIP: local.Status.PodIP}
}

// ReadsAddress reports whether a container reads the address that this cluster shows for its pod.
func ReadsAddress(pod *corev1.Pod) bool { return readFields(&pod.Spec)[annotationPath(labels.PodIP)] }

// ours are keys of labels and annotations that a remote pod may have and the local one has not.
var ours = project.Keys{"liqo.io/*", "virtualkubelet.liqo.io/*"}

func annotationPath(key string) string { return fieldAnnotations + "['" + key + "']" }

func (d *downward) carry(ref *corev1.ObjectFieldSelector, name, value string) {
	ref.FieldPath, d.carried[labels.Downward+name] = annotationPath(labels.Downward+name), value
}

// carryKey carries one label or annotation. If the pod does not have it, the annotation is missing as well, and the
// container reads an empty text in both clusters.
func (d *downward) carryKey(ref *corev1.ObjectFieldSelector, name, key string, all map[string]string) {
	name = labels.Downward + name + project.Hash(key)
	if value, ok := all[key]; ok {
		d.carried[name] = value
	}
	ref.FieldPath = annotationPath(name)
}

// addTo adds the annotations that carry fields to those of the ShadowPod. If they are too large together, the largest are left out, as single lines of the list
// of all annotations.
func (d *downward) addTo(all map[string]string) map[string]string {
	if len(d.carried) == 0 && !d.listed {
		return all
	}
	if all == nil {
		all = map[string]string{}
	}
	left := mostAnnotations
	for key, value := range all {
		left -= len(key) + len(value)
	}
	byLength := func(a, b string) int { return cmp.Or(len(d.carried[a])-len(d.carried[b]), strings.Compare(a, b)) }
	for _, key := range slices.SortedFunc(maps.Keys(d.carried), byLength) {
		if takes := len(key) + len(d.carried[key]); takes <= left {
			all[key], left = d.carried[key], left-takes
		}
	}
	if key := labels.Downward + "annotations"; d.listed {
		all[key] = listing(d.annotations, left-len(key))
	}
	return all
}

// listing returns labels or annotations as a kubelet writes them into a file, in at most so many bytes: without the longest ones, if need be.
func listing(all map[string]string, most int) string {
	var lines []string
	takes := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		line := key + "=" + strconv.Quote(all[key])
		lines, takes = append(lines, line), takes+len(line)+1
	}
	for takes-1 > most && len(lines) > 0 {
		longest := slices.MaxFunc(lines, func(a, b string) int { return len(a) - len(b) })
		at := slices.Index(lines, longest)
		lines, takes = slices.Delete(lines, at, at+1), takes-len(longest)-1
	}
	return strings.Join(lines, "\n")
}

// WithoutUnread returns the annotations of a ShadowPod without those that carry fields which no container of its pod reads: it was created by a version that
// did not carry them, and such an annotation would cost a write, and show in the files of the pod.
func WithoutUnread(annotations map[string]string, spec *corev1.PodSpec) map[string]string {
	read := readFields(spec)
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, labels.Downward) && !read[annotationPath(key)] })
	return kept
}

// ReadsAnnotations reports whether a container reads all annotations of its pod, or the one that nothing else of ours reads.
func ReadsAnnotations(pod *corev1.Pod) bool {
	read := readFields(&pod.Spec)
	return read[fieldAnnotations] || read[annotationPath(corev1.LastAppliedConfigAnnotation)]
}

// readFields returns the fields that containers of a pod read by the downward API.
func readFields(spec *corev1.PodSpec) map[string]bool {
	read := map[string]bool{}
	variables := func(all []corev1.EnvVar) {
		for _, variable := range all {
			if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
				read[variable.ValueFrom.FieldRef.FieldPath] = true
			}
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			variables(containers[i].Env)
		}
	}
	for i := range spec.EphemeralContainers {
		variables(spec.EphemeralContainers[i].Env)
	}
	eachFile(spec, func(file *corev1.DownwardAPIVolumeFile) {
		if file.FieldRef != nil {
			read[file.FieldRef.FieldPath] = true
		}
	})
	return read
}
