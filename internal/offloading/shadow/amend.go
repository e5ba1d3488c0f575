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
	"liqo.io/liqo/internal/offloading/metadata"
)

// Op is one operation of a JSON patch. A patch that names each field leaves alone what other controllers added to the pod.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patches bring a live pod to the state of its ShadowPod. Each is nil if it would change nothing.
type Patches struct {
	// Ephemeral and Resize are for subresources, and come first. Added are the containers of Ephemeral.
	Ephemeral, Resize []Op
	Added             []corev1.EphemeralContainer
	// Rest sets the annotations that record that everything is applied. Unrecorded is Rest if Ephemeral or Resize were refused: it records the other changes.
	Rest, Unrecorded []Op
}

// Amend returns the patches of a live pod. They have only what the peer has changed since it was last sent: in other fields, what the provider did to the pod
// stays. owner is our name in the managed fields of the pod.
func Amend(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, peer, owner string, allowed metadata.Allowed) Patches {
	want, before := fieldsOf(shadow, peer, allowed), readRecord(pod)
	ownLabels, ownAnnotations, recorded := recordedKeys(pod, allowed)
	if !recorded {
		ownLabels, ownAnnotations = ownedKeys(pod, owner)
	}
	changed := func(name string) bool { return !before.sent(name, want[name]) }
	if before == nil {
		theirs := adopted(shadow, pod, want, lost(pod, want, ownLabels, ownAnnotations))
		changed = func(name string) bool { return !theirs[name] }
	}
	spec := specOps(shadow, pod, allowed, changed)
	metadata := func(revision string, sent record) []Op {
		annotations, labelled := podAnnotations(shadow, allowed), podLabels(shadow, peer, allowed)
		if recorded {
			annotations[labels.ShadowPodKeys] = pod.Annotations[labels.ShadowPodKeys]
			if now := givenKeys(&metav1.ObjectMeta{Labels: labelled, Annotations: annotations}); len(now) <= maxKeys {
				annotations[labels.ShadowPodKeys] = now
			}
		}
		if chosen, ok := pod.Annotations[labels.PodArchitecture]; ok {
			annotations[labels.PodArchitecture] = chosen
		}
		annotations[labels.ShadowPodRevision] = revision
		if text := sent.text(revision); text != "" {
			annotations[labels.ShadowPodSent] = text
		}
		return slices.Concat(
			keys("/metadata/labels", labelled, pod.Labels, ownLabels, func(key string) bool { return always.Match(key) || changed(labelField+key) }),
			keys("/metadata/annotations", annotations, pod.Annotations, ownAnnotations, func(key string) bool {
				return always.Match(key) ||
					changed(annotationField+key)
			}),
		)
	}
	all, revision := recordOf(want), Revision(shadow)
	added := addedContainers(shadow, pod, allowed, changed)
	patches := Patches{
		Ephemeral: ephemeralOps(pod, added), Added: added, Resize: resize(&shadow.Spec.Pod, pod, changed),
		Rest: slices.Concat(metadata(revision, all), spec),
	}
	was := pod.Annotations[labels.ShadowPodRevision]
	patches.Unrecorded = slices.Concat(metadata(was, all.without(want, before)), spec)
	for _, patch := range []*[]Op{&patches.Ephemeral, &patches.Resize, &patches.Rest, &patches.Unrecorded} {
		if *patch = slices.Concat([]Op{{"test", "/metadata/uid", string(pod.UID)}}, *patch); len(*patch) == 1 {
			*patch = nil
		}
	}
	return patches
}

// lost returns, by the names of their fields, the labels and annotations that a pod has from its ShadowPod, and that this has lost.
func lost(pod *corev1.Pod, want fields, ownLabels, ownAnnotations []string) map[string]string {
	all := map[string]string{}
	for kind, of := range map[string]struct {
		own  []string
		live map[string]string
	}{labelField: {ownLabels, pod.Labels}, annotationField: {ownAnnotations, pod.Annotations}} {
		for _, key := range of.own {
			value, ok := of.live[key]
			if _, wanted := want[kind+key]; ok && !wanted && !always.Match(key) {
				all[kind+key] = value
			}
		}
	}
	return all
}

// addedContainers returns the ephemeral containers that a pod is to get. They never change.
func addedContainers(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, allowed metadata.Allowed, changed func(string) bool) (added []corev1.EphemeralContainer) {
	for _, ephemeralContainer := range shadow.Spec.Pod.EphemeralContainers {
		if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(other corev1.EphemeralContainer) bool { return other.Name == ephemeralContainer.Name }) ||
			!changed(ephemeralField+ephemeralContainer.Name) {
			continue
		}
		if !allowed.Tracing {
			ephemeralContainer.SecurityContext = withoutTrace(ephemeralContainer.SecurityContext)
		}
		if allowed.AlwaysPull {
			ephemeralContainer.ImagePullPolicy = corev1.PullAlways
		}
		added = append(added, ephemeralContainer)
	}
	return added
}

func ephemeralOps(pod *corev1.Pod, added []corev1.EphemeralContainer) (ops []Op) {
	for i, container := range added {
		ops = append(ops, element("/spec/ephemeralContainers", len(pod.Spec.EphemeralContainers)+i, container))
	}
	return ops
}

// specOps changes images, the deadline and tolerations.
func specOps(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod, allowed metadata.Allowed, changed func(string) bool) []Op {
	ops := slices.Concat(
		retag("/spec/containers/", shadow.Spec.Pod.Containers, pod.Spec.Containers, changed),
		retag("/spec/initContainers/", shadow.Spec.Pod.InitContainers, pod.Spec.InitContainers, changed),
	)
	if desired, is := shadow.Spec.Pod.ActiveDeadlineSeconds,
		pod.Spec.ActiveDeadlineSeconds; desired != nil && (is == nil || *is > *desired) && changed(deadlineField) {
		ops = append(ops, Op{"add", "/spec/activeDeadlineSeconds", *desired})
	}
	there := len(pod.Spec.Tolerations)
	for _, toleration := range tolerations(shadow.Spec.Pod.Tolerations, allowed) {
		if changed(tolerationName(toleration)) &&
			!slices.ContainsFunc(pod.Spec.Tolerations, func(other corev1.Toleration) bool { return reflect.DeepEqual(toleration, other) }) {
			ops = append(ops, element("/spec/tolerations", there, toleration))
			there++
		}
	}
	return ops
}

// element appends value to a list, and creates an empty list: in JSON, an empty list is a missing field.
func element(list string, there int, value any) Op {
	if there == 0 {
		return Op{"add", list, []any{value}}
	}
	return Op{"add", list + "/-", value}
}

// keys brings those keys of a map to the desired state that have changed. It removes only the keys in own.
func keys(at string, desired, is map[string]string, own []string, changed func(key string) bool) (ops []Op) {
	if is == nil {
		desired = maps.Clone(desired)
		if maps.DeleteFunc(desired, func(key, _ string) bool { return !changed(key) }); len(desired) > 0 {
			return []Op{{"add", at, desired}}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if value, ok := is[key]; (!ok || value != desired[key]) && changed(key) {
			ops = append(ops, Op{"add", at + "/" + pointer(key), desired[key]})
		}
	}
	for _, key := range own {
		_, keep := desired[key]
		if _, ok := is[key]; ok && !keep {
			ops = append(ops, Op{Op: "remove", Path: at + "/" + pointer(key)})
		}
	}
	return ops
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(key string) string { return escape.Replace(key) }

// retag changes images. It ignores containers that other controllers added to the pod.
func retag(at string, desired, is []corev1.Container, changed func(string) bool) (ops []Op) {
	for i := range is {
		for j := range desired {
			if desired[j].Name == is[i].Name && desired[j].Image != is[i].Image && changed(imageField+is[i].Name) {
				path := at + strconv.Itoa(i)
				ops = append(ops, Op{"test", path + "/name", is[i].Name}, Op{"replace", path + "/image", desired[j].Image})
			}
		}
	}
	return ops
}

// maxKeys bounds the annotation that records keys: with more, a pod that is valid could become too large.
const maxKeys = 8 << 10

// always are the keys that every pod of a ShadowPod has, and that are never removed.
var always = metadata.Keys{
	labels.ManagedBy, labels.Origin, labels.Destination, labels.Fence, labels.ShadowPodRevision, labels.ShadowPodKeys, labels.ShadowPodSent,
	labels.PodArchitecture,
}

// givenKeys returns what labels.ShadowPodKeys is to record about metadata that comes from a ShadowPod alone.
func givenKeys(from metav1.Object) string {
	list := func(all map[string]string) string {
		return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(all)), always.Match), ",")
	}
	return list(from.GetLabels()) + ";" + list(from.GetAnnotations())
}

// recordedKeys returns the labels and annotations that a pod has from its ShadowPod, as the pod records them. Those of earlier versions do not, nor those with
// very many keys. An earlier version let the peer write the record, so a key that a peer may not set is not in it.
func recordedKeys(pod *corev1.Pod, allowed metadata.Allowed) (ownLabels, ownAnnotations []string, recorded bool) {
	text, recorded := pod.Annotations[labels.ShadowPodKeys]
	first, second, _ := strings.Cut(text, ";")
	theirs := func(list string, refused func(key string) bool) []string {
		return slices.DeleteFunc(strings.Split(list, ","), refused)
	}
	return theirs(first, func(key string) bool { return !allowed.Label(key) || always.Match(key) }),
		theirs(second, func(key string) bool { return !allowed.Annotation(key) || metadata.Reserved(key) || always.Match(key) }), recorded
}

// ownedKeys returns the labels and annotations that we set and no other client has changed since, by the managed fields.
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
			continue // unknown ownership: remove nothing
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
