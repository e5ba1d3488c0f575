// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// maxArchitectures bounds how many a peer may name. Kubernetes is built for fewer.
const maxArchitectures = 8

// Architectures returns the architectures of nodes on which a new pod may run; nil if it makes no difference. reported are those that the peer knows
// of this cluster: its virtual node has the first one as label, so its scheduler has sent a pod that runs on that one, and maybe on no other. A pod
// that runs on several names them.
//
// chosen is the one of a pod that names none, which its ShadowPod is to remember: the first one, unless the ShadowPod remembers another one that this
// cluster has nodes of.
func Architectures(shadow *vkv1alpha1.ShadowPod, reported []string) (on []string, chosen string) {
	on = architecturesIn(shadow.Annotations[labels.Architectures])
	if len(on) == 0 {
		chosen = shadow.Status.Architecture
		if len(reported) > 0 && !slices.Contains(reported, chosen) {
			chosen = reported[0]
		}
		on = []string{chosen}
	}
	if len(reported) > 1 || len(reported) == 0 && chosen != "" {
		return on, chosen
	}
	return nil, chosen
}

// architecturesIn returns the architectures that a peer names, sorted; nothing if one of them is none, or there are too many.
func architecturesIn(list string) (all []string) {
	for _, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if len(all) == maxArchitectures || len(validation.IsValidLabelValue(name)) > 0 {
			return nil
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Choose records on a new pod the architecture that was chosen for it.
func Choose(pod *corev1.Pod, architecture string) {
	if architecture != "" {
		pod.Annotations[labels.PodArchitecture] = architecture
	}
}

// RunOn has a new pod run on nodes of these architectures only. A pod of a peer has no other affinity to nodes.
func RunOn(spec *corev1.PodSpec, architectures []string) {
	if len(architectures) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: architectures}},
		}},
	}}
}

// Architecture returns what a ShadowPod is to remember: the architecture that was chosen for its pod; empty if nothing was.
func Architecture(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod) string {
	if chosen := pod.Annotations[labels.PodArchitecture]; chosen != "" && len(validation.IsValidLabelValue(chosen)) == 0 {
		return chosen
	}
	return shadow.Status.Architecture
}
