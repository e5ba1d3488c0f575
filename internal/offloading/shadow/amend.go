// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Op is one operation of a JSON patch. A patch that names each field touches nothing that somebody else put into the pod.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Amend returns what makes a live pod as its wish is now: ephemeral containers, which have a subresource of their own and come first, and the
// rest, whose mark says that all is done. owner is our name in the pod's managed fields.
func Amend(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, peer, owner string) (ephemeral, rest []Op) {
	same := Op{"test", "/metadata/uid", string(pod.UID)}
	ephemeral, rest = []Op{same}, []Op{same}

	list := "/spec/ephemeralContainers"
	there := len(pod.Spec.EphemeralContainers)
	for _, one := range shadow.Spec.Pod.EphemeralContainers {
		if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(other corev1.EphemeralContainer) bool { return other.Name == one.Name }) {
			continue // they never change
		}
		ephemeral = append(ephemeral, element(list, there, one))
		there++
	}

	annotations := podAnnotations(shadow)
	annotations[labels.ShadowPodRevision] = Revision(shadow)
	ownLabels, ownAnnotations := ownedKeys(pod, owner)
	rest = append(rest, keys("/metadata/labels", podLabels(shadow, peer), pod.Labels, ownLabels)...)
	rest = append(rest, keys("/metadata/annotations", annotations, pod.Annotations, ownAnnotations)...)
	rest = append(rest, retag("/spec/containers/", shadow.Spec.Pod.Containers, pod.Spec.Containers)...)
	rest = append(rest, retag("/spec/initContainers/", shadow.Spec.Pod.InitContainers, pod.Spec.InitContainers)...)
	if wish, is := shadow.Spec.Pod.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds; wish != nil && (is == nil || *is > *wish) {
		rest = append(rest, Op{"add", "/spec/activeDeadlineSeconds", *wish})
	}
	there = len(pod.Spec.Tolerations)
	for _, one := range tolerations(shadow.Spec.Pod.Tolerations) {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(other corev1.Toleration) bool { return reflect.DeepEqual(one, other) }) {
			rest = append(rest, element("/spec/tolerations", there, one))
			there++
		}
	}
	if len(ephemeral) == 1 {
		ephemeral = nil
	}
	return ephemeral, rest
}

// element appends to a list, which it makes if it is empty: an empty list is no field at all.
func element(list string, there int, value any) Op {
	if there == 0 {
		return Op{"add", list, []any{value}}
	}
	return Op{"add", list + "/-", value}
}

// keys makes a map as wished; only keys that are ours are taken away.
func keys(at string, wish, is map[string]string, own []string) (ops []Op) {
	if is == nil && len(wish) > 0 {
		return []Op{{"add", at, wish}}
	}
	for _, key := range slices.Sorted(maps.Keys(wish)) {
		if value, there := is[key]; !there || value != wish[key] {
			ops = append(ops, Op{"add", at + "/" + pointer(key), wish[key]})
		}
	}
	for _, key := range own {
		_, wished := wish[key]
		if _, there := is[key]; there && !wished {
			ops = append(ops, Op{Op: "remove", Path: at + "/" + pointer(key)})
		}
	}
	return ops
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(key string) string { return escape.Replace(key) }

// retag changes images. Containers that somebody put into the pod besides are not looked at.
func retag(at string, wish, is []corev1.Container) (ops []Op) {
	for i := range is {
		for j := range wish {
			if wish[j].Name == is[i].Name && wish[j].Image != is[i].Image {
				path := at + strconv.Itoa(i)
				ops = append(ops, Op{"test", path + "/name", is[i].Name}, Op{"replace", path + "/image", wish[j].Image})
			}
		}
	}
	return ops
}

// ownedKeys are the labels and annotations that we put there, and nobody has changed since.
func ownedKeys(pod *corev1.Pod, owner string) (ownLabels, ownAnnotations []string) {
	for _, entry := range pod.ManagedFields {
		if entry.Manager != owner || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels      map[string]any `json:"f:labels"`
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // nothing is known, nothing is taken away
		}
		ownLabels, ownAnnotations = append(ownLabels, names(fields.Metadata.Labels)...), append(ownAnnotations, names(fields.Metadata.Annotations)...)
	}
	slices.Sort(ownLabels)
	slices.Sort(ownAnnotations)
	return slices.Compact(ownLabels), slices.Compact(ownAnnotations)
}

func names(fields map[string]any) (all []string) {
	for field := range fields {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			all = append(all, key)
		}
	}
	return all
}

// Release takes our finalizer from a pod; nil if it has none.
func Release(pod *corev1.Pod) []Op {
	at := slices.Index(pod.Finalizers, labels.FinalizerPodEnd)
	if at < 0 {
		return nil
	}
	path := "/metadata/finalizers/" + strconv.Itoa(at)
	return []Op{{"test", "/metadata/uid", string(pod.UID)}, {"test", path, labels.FinalizerPodEnd}, {Op: "remove", Path: path}}
}
