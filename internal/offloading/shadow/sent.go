// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

// A pod records what was last sent to it, field by field. A change is what differs from that, and not what differs from the living pod: what the
// admission of the provider did to the pod, such as another image, stays until the peer changes that field.

// fields are those fields of a ShadowPod that may change, with the values that its pod is to get. The name of each begins with its kind.
type fields map[string]string

const (
	labelField      = "label/"
	annotationField = "annotation/"
	imageField      = "image/"
	amountField     = "amount/"
	tolerationField = "toleration/"
	ephemeralField  = "ephemeral/"
	deadlineField   = "deadline"
)

// maxFields bounds the record. A pod with more has none.
const maxFields = 600

// fieldsOf returns the fields of a ShadowPod of a peer.
func fieldsOf(shadow *vkv1alpha1.ShadowPod, peer string, allowed metadata.Allowed) fields {
	all, spec := fields{}, &shadow.Spec.Pod
	for key, value := range podLabels(shadow, peer, allowed) {
		all[labelField+key] = value
	}
	for key, value := range podAnnotations(shadow, allowed) {
		all[annotationField+key] = value
	}
	amounts := func(name string, of *corev1.ResourceRequirements) {
		for list, amounts := range map[string]corev1.ResourceList{requestsList: of.Requests, limitsList: of.Limits} {
			for _, resource := range resizable {
				if quantity, ok := amounts[resource]; ok {
					all[amountName(name, list, resource)] = quantity.String()
				}
			}
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			all[imageField+containers[i].Name] = containers[i].Image
			amounts(containers[i].Name, &containers[i].Resources)
		}
	}
	if spec.Resources != nil {
		amounts("", spec.Resources)
	}
	for _, toleration := range tolerations(spec.Tolerations, allowed) {
		all[tolerationName(toleration)] = ""
	}
	for i := range spec.EphemeralContainers {
		all[ephemeralField+spec.EphemeralContainers[i].Name] = ""
	}
	if spec.ActiveDeadlineSeconds != nil {
		all[deadlineField] = strconv.FormatInt(*spec.ActiveDeadlineSeconds, 10)
	}
	return all
}

const requestsList, limitsList = "requests", "limits"

func amountName(container, list string, resource corev1.ResourceName) string {
	return amountField + container + "/" + list + "/" + string(resource)
}

func tolerationName(toleration corev1.Toleration) string {
	text, err := json.Marshal(toleration)
	if err != nil {
		panic(err) // plain data
	}
	return tolerationField + string(text)
}

// An entry of a record is a hash of the name of a field, and one of its value. A peer that finds two names with one hash confuses its own pod.
const nameSize, valueSize = 4, 5

type (
	nameHash  [nameSize]byte
	valueHash [valueSize]byte
)

func hashName(name string) (hash nameHash) {
	sum := sha256.Sum256([]byte(name))
	copy(hash[:], sum[:])
	return hash
}

func hashValue(value string) (hash valueHash) {
	sum := sha256.Sum256([]byte(value))
	copy(hash[:], sum[:])
	return hash
}

// record is what was sent to a pod.
type record map[nameHash]valueHash

// recordOf returns the record of fields.
func recordOf(all fields) record {
	made := record{}
	for name, value := range all {
		made[hashName(name)] = hashValue(value)
	}
	return made
}

// text returns a record for a pod with this revision; empty if there is too much.
func (r record) text(revision string) string {
	if len(r) > maxFields {
		return ""
	}
	seal := hashValue(revision)
	packed := seal[:]
	for _, name := range slices.SortedFunc(maps.Keys(r), func(a, b nameHash) int { return slices.Compare(a[:], b[:]) }) {
		value := r[name]
		packed = append(append(packed, name[:]...), value[:]...)
	}
	return base64.RawStdEncoding.EncodeToString(packed)
}

// readRecord returns the record of a pod; nil if it has none. One that an earlier version of Liqo left behind, when it changed the pod, is of another revision.
func readRecord(pod *corev1.Pod) record {
	packed, err := base64.RawStdEncoding.DecodeString(pod.Annotations[labels.ShadowPodSent])
	if err != nil || len(packed) < valueSize || (len(packed)-valueSize)%(nameSize+valueSize) != 0 ||
		valueHash(packed[:valueSize]) != hashValue(pod.Annotations[labels.ShadowPodRevision]) {
		return nil
	}
	read := record{}
	for entry := range slices.Chunk(packed[valueSize:], nameSize+valueSize) {
		read[nameHash(entry[:nameSize])] = valueHash(entry[nameSize:])
	}
	return read
}

// sent reports whether a field was sent with this value.
func (r record) sent(name, value string) bool {
	hash, ok := r[hashName(name)]
	return ok && hash == hashValue(value)
}

// kinds of fields that a peer may refuse on their own, so that they are sent again while the others are not.
var partial = []string{amountField, ephemeralField}

// without returns the record of what was sent if fields that may be refused on their own were not.
func (r record) without(all fields, before record) record {
	made := maps.Clone(r)
	for name := range all {
		if !slices.ContainsFunc(partial, func(kind string) bool { return strings.HasPrefix(name, kind) }) {
			continue
		}
		hash := hashName(name)
		delete(made, hash)
		if value, was := before[hash]; was {
			made[hash] = value
		}
	}
	return made
}
