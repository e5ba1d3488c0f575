// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// maxDiffering bounds how many differing fields of a pod without a record are distinguished: each one doubles the work.
const maxDiffering = 10

// differing is a field in which a ShadowPod and its living pod differ. undo gives the ShadowPod what the pod has.
type differing struct {
	name string
	undo func(*vkv1alpha1.ShadowPod)
}

// adopted returns the fields of a pod without a record that the peer has not changed, although they differ from the ShadowPod: the provider has. An earlier
// version of Liqo made the pod, and recorded a hash of all that it sent. The fields that the peer has changed since are those which, undone, give that hash.
// It returns nothing if there are none, or too many differ.
func adopted(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, want fields, removed map[string]string) map[string]bool {
	all := differences(shadow, pod, want)
	if len(all) == 0 || len(all) > maxDiffering {
		return nil
	}
	sent := pod.Annotations[labels.ShadowPodRevision]
	for changed := range 1 << len(all) {
		was := shadow.DeepCopy()
		giveBack(was, removed)
		theirs, inSpec := map[string]bool{}, false
		for i, entry := range all {
			if changed&(1<<i) == 0 {
				theirs[entry.name] = true
				continue
			}
			entry.undo(was)
			inSpec = inSpec || !strings.HasPrefix(entry.name, labelField) && !strings.HasPrefix(entry.name, annotationField)
		}
		if Revision(was) == sent {
			return theirs
		}
		if was.Generation = 1; Revision(was) == sent {
			return withoutAmounts(theirs, shadow.Generation > 1 && !inSpec)
		}
	}
	return nil
}

// withoutAmounts is for a hash without amounts, as it is until the first change of the spec: if that was no other field, the peer has changed the amounts.
func withoutAmounts(theirs map[string]bool, changed bool) map[string]bool {
	maps.DeleteFunc(theirs, func(name string, _ bool) bool { return changed && strings.HasPrefix(name, amountField) })
	return theirs
}

// giveBack gives a ShadowPod labels and annotations that it has lost, by the names of their fields.
func giveBack(shadow *vkv1alpha1.ShadowPod, removed map[string]string) {
	for name, value := range removed {
		put(shadow, name, value, true)
	}
}

// put sets or removes a label or an annotation by the name of its field.
func put(shadow *vkv1alpha1.ShadowPod, name, value string, there bool) {
	for kind, in := range map[string]*map[string]string{labelField: &shadow.Labels, annotationField: &shadow.Annotations} {
		key, ok := strings.CutPrefix(name, kind)
		switch {
		case !ok:
		case !there:
			delete(*in, key)
		default:
			if *in == nil {
				*in = map[string]string{}
			}
			(*in)[key] = value
		}
	}
}

// differences returns the fields of a ShadowPod in which its pod differs.
func differences(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, want fields) (all []differing) {
	metadata := func(kind string, live map[string]string) {
		for name, value := range want {
			key, ok := strings.CutPrefix(name, kind)
			if has, there := live[key]; ok && (!there || has != value) {
				all = append(all, differing{name, func(s *vkv1alpha1.ShadowPod) { put(s, name, has, there) }})
			}
		}
	}
	metadata(labelField, pod.Labels)
	metadata(annotationField, pod.Annotations)
	for _, lists := range []struct {
		of   func(*vkv1alpha1.ShadowPod) []corev1.Container
		live []corev1.Container
	}{
		{func(s *vkv1alpha1.ShadowPod) []corev1.Container { return s.Spec.Pod.InitContainers }, pod.Spec.InitContainers},
		{func(s *vkv1alpha1.ShadowPod) []corev1.Container { return s.Spec.Pod.Containers }, pod.Spec.Containers},
	} {
		for i, mine := range lists.of(shadow) {
			at := slices.IndexFunc(lists.live, func(container corev1.Container) bool { return container.Name == mine.Name })
			if at < 0 {
				continue
			}
			live := &lists.live[at]
			if live.Image != mine.Image {
				all = append(all, differing{imageField + mine.Name, func(s *vkv1alpha1.ShadowPod) { lists.of(s)[i].Image = live.Image }})
			}
			all = append(all, amountDifferences(mine.Name, &mine.Resources, &live.Resources, func(s *vkv1alpha1.ShadowPod) *corev1.ResourceRequirements {
				return &lists.of(s)[i].Resources
			})...)
		}
	}
	if mine, live := shadow.Spec.Pod.Resources, pod.Spec.Resources; mine != nil && live != nil {
		all = append(all, amountDifferences("", mine, live, func(s *vkv1alpha1.ShadowPod) *corev1.ResourceRequirements { return s.Spec.Pod.Resources })...)
	}
	return append(all, listDifferences(shadow, pod)...)
}

// amountDifferences returns the amounts of a container in which its pod differs.
func amountDifferences(
	container string, mine, live *corev1.ResourceRequirements, of func(*vkv1alpha1.ShadowPod) *corev1.ResourceRequirements,
) (all []differing) {
	for _, lists := range []struct {
		name       string
		mine, live corev1.ResourceList
		of         func(*corev1.ResourceRequirements) corev1.ResourceList
	}{
		{requestsList, mine.Requests, live.Requests, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }},
		{limitsList, mine.Limits, live.Limits, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }},
	} {
		for resource := range changed(lists.live, lists.mine) {
			is, ok := lists.live[resource]
			all = append(all, differing{amountName(container, lists.name, resource), func(s *vkv1alpha1.ShadowPod) {
				if ok {
					lists.of(of(s))[resource] = is
				} else {
					delete(lists.of(of(s)), resource)
				}
			}})
		}
	}
	return all
}

// listDifferences returns the deadline, the tolerations and the ephemeral containers that a pod lacks.
func listDifferences(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod) (all []differing) {
	if desired, is := shadow.Spec.Pod.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds; desired != nil && (is == nil || *is != *desired) {
		all = append(all, differing{deadlineField, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.ActiveDeadlineSeconds = is }})
	}
	for _, toleration := range shadow.Spec.Pod.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(other corev1.Toleration) bool { return equality.Semantic.DeepEqual(toleration, other) }) {
			all = append(all, differing{tolerationName(toleration), func(s *vkv1alpha1.ShadowPod) {
				s.Spec.Pod.Tolerations = slices.DeleteFunc(s.Spec.Pod.Tolerations, func(other corev1.Toleration) bool {
					return equality.Semantic.DeepEqual(toleration, other)
				})
			}})
		}
	}
	for i := range shadow.Spec.Pod.EphemeralContainers {
		name := shadow.Spec.Pod.EphemeralContainers[i].Name
		if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(other corev1.EphemeralContainer) bool { return other.Name == name }) {
			all = append(all, differing{ephemeralField + name, func(s *vkv1alpha1.ShadowPod) {
				s.Spec.Pod.EphemeralContainers = slices.DeleteFunc(s.Spec.Pod.EphemeralContainers, func(other corev1.EphemeralContainer) bool { return other.Name == name })
			}})
		}
	}
	return all
}
