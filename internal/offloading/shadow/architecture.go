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

// mostArchitectures bounds how many a peer may name. Kubernetes is built for fewer.
const mostArchitectures = 8

// Architectures returns the architectures of nodes on which a new pod may run; nil if it makes no difference. reported are those that the peer knows of this cluster: its
// virtual node has the first one as label, so its scheduler has sent a pod that runs on that one, and maybe on no other. A pod that runs on several names them.
func Architectures(shadow *vkv1alpha1.ShadowPod, reported []string) []string {
	if len(reported) < 2 {
		return nil
	}
	var named []string
	for _, one := range strings.Split(shadow.Annotations[labels.Architectures], ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		if len(named) == mostArchitectures || len(validation.IsValidLabelValue(one)) > 0 {
			return reported[:1] // as if nothing were named
		}
		named = append(named, one)
	}
	if len(named) == 0 {
		return reported[:1]
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// RunOn has a new pod run on nodes of these architectures only. A pod of a peer has no other affinity to nodes.
func RunOn(spec *corev1.PodSpec, architectures []string) {
	if len(architectures) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: architectures}},
	}}}}
}
