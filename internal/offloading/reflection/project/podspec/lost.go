// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// loss is what the loss of a field means for a pod.
type loss int

const (
	// unnoticed: this cluster has done what the field asks, or another field stands for it.
	unnoticed loss = iota
	// reported: the pod runs without, has no more rights than it asked for, and an event reports it.
	reported
	// notSent: without, the pod would be less isolated than it asked for, or run on other nodes or devices. It is not sent, unless its namespace allows that.
	notSent
)

// lostFields are all fields of a pod's specification that it does not have in the peer.
var lostFields = []struct {
	name  string
	loss  loss
	why   string
	asked func(*corev1.PodSpec) bool // not for what is unnoticed
}{
	{"hostNetwork", reported, "the pod is more isolated", func(spec *corev1.PodSpec) bool { return spec.HostNetwork }},
	{"hostPID", reported, "the pod is more isolated", func(spec *corev1.PodSpec) bool { return spec.HostPID }},
	{"hostIPC", reported, "the pod is more isolated", func(spec *corev1.PodSpec) bool { return spec.HostIPC }},

	{
		"runtimeClassName", notSent, "the class may be the sandbox that keeps the pod from its node",
		func(spec *corev1.PodSpec) bool { return spec.RuntimeClassName != nil },
	},
	{"resourceClaims", notSent, "the claims name devices, and the nodes that have them", func(spec *corev1.PodSpec) bool { return len(spec.ResourceClaims) > 0 }},
	// Windows is not copied: it would exempt the pod from rules of the peer. Virtual nodes are Linux.
	{"os", notSent, "a node of another system would run the pod", func(spec *corev1.PodSpec) bool { return spec.OS != nil && spec.OS.Name != corev1.Linux }},

	{"clusterTrustBundle", notSent, "the bundle is an object of this cluster, and the peer chooses what one of its own contains", func(spec *corev1.PodSpec) bool {
		return projects(spec, isTrustBundle)
	}},
	{"podCertificate", reported, "a file is missing, and the program that reads it reports that", func(spec *corev1.PodSpec) bool {
		return projects(spec, isPodCertificate)
	}},

	{"overhead", unnoticed, "it is that of the runtimeClassName", nil},
	{"affinity", unnoticed, "the scheduler of this cluster has chosen the virtual node by it", nil},
	{"nodeSelector", unnoticed, "the same", nil},
	{"nodeName", unnoticed, "it is the virtual node", nil},
	{"schedulerName", unnoticed, "that scheduler has chosen the virtual node", nil},
	{"schedulingGates", unnoticed, "a pod on a node has none left", nil},
	{"schedulingGroup", unnoticed, "the scheduler of this cluster has placed the group", nil},
	{"priority", unnoticed, "it ranks the pods of this cluster, whose scheduler has respected it", nil},
	{"priorityClassName", unnoticed, "the same", nil},
	{"preemptionPolicy", unnoticed, "the same", nil},
	{"evictionResponders", unnoticed, "evictions of the pod are requests to this cluster", nil},
	{"serviceAccountName", unnoticed, "the pod has the tokens of its account, from a Secret", nil},
	{"serviceAccount", unnoticed, "the same", nil},
	{"automountServiceAccountToken", unnoticed, "the same", nil},
	{"readinessGates", unnoticed, "they are in this cluster, and count for the readiness that it shows", nil},
}

// projects reports whether a volume of a pod has such a source.
func projects(spec *corev1.PodSpec, such func(corev1.VolumeProjection) bool) bool {
	return slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, such)
	})
}

// DroppedFields names what a pod asks for and does not get in a peer. If it runs there, it runs without; an event lists the fields.
func DroppedFields(local *corev1.Pod) []string {
	var dropped []string
	for _, field := range lostFields {
		if field.loss != unnoticed && field.asked(&local.Spec) {
			dropped = append(dropped, field.name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(local.Annotations)) {
		if metadata.Reach(key) != "" {
			dropped = append(dropped, "annotation "+key)
		}
	}
	return dropped
}

// Unmet names the fields because of which a pod is not sent to a peer: it does not get them there, and its namespace does not let its pods run without.
func Unmet(local *corev1.Pod, runWithout []string) (unmet []string) {
	for _, field := range lostFields {
		if field.loss == notSent && field.asked(&local.Spec) && !slices.Contains(runWithout, field.name) {
			unmet = append(unmet, field.name)
		}
	}
	return unmet
}

// Unsent returns the ErrRefused of a pod with such fields: which they are, why it is not run without, and what to try.
func Unsent(local *corev1.Pod, runWithout []string) error {
	unmet := Unmet(local, runWithout)
	var reasons []string
	for _, field := range lostFields {
		if slices.Contains(unmet, field.name) {
			reasons = append(reasons, field.name+": "+field.why)
		}
	}
	return fmt.Errorf("%w: virtual node %s gives no pod its %s, and does not run it without (%s); to keep the pod off virtual nodes: node affinity %s NotIn %s; "+
		"to run it without: runWithout: [%s] in the spec of the NamespaceOffloading", project.ErrRefused, local.Spec.NodeName, strings.Join(unmet, ", "),
		strings.Join(reasons, "; "),
		labels.Type, labels.TypeVirtualNode, strings.Join(unmet, ", "))
}

// LostFields returns, for each field of a pod's specification that it does not have in the peer, why that is right.
func LostFields() map[string]string {
	all := map[string]string{}
	for _, field := range lostFields {
		all[field.name] = field.why
	}
	return all
}
