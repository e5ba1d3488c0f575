// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// TestArchitectures: a pod that names architectures in its node selector or node affinity names them to the peer, which copies neither.
func TestArchitectures(t *testing.T) {
	in := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "kubernetes.io/arch", Operator: operator, Values: values}
	}
	other := corev1.NodeSelectorRequirement{Key: "tier", Operator: corev1.NodeSelectorOpExists}
	terms := func(all ...[]corev1.NodeSelectorRequirement) corev1.PodSpec {
		required := &corev1.NodeSelector{}
		for _, one := range all {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: one})
		}
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}}
	}
	type list = []corev1.NodeSelectorRequirement
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		note string
		want string
	}{
		"none":                        {corev1.PodSpec{}, "", ""},
		"node selector":               {corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/arch": "arm64"}}, "", "arm64"},
		"another node selector":       {corev1.PodSpec{NodeSelector: map[string]string{"tier": "x"}}, "", ""},
		"several":                     {terms(list{in("In", "arm64", "amd64")}), "", "amd64,arm64"},
		"with others":                 {terms(list{other, in("In", "amd64", "amd64")}), "", "amd64"},
		"alternatives":                {terms(list{in("In", "arm64")}, list{in("In", "amd64")}), "", "amd64,arm64"},
		"an alternative with any":     {terms(list{in("In", "arm64")}, list{other}), "", ""},
		"not one":                     {terms(list{in("NotIn", "arm64")}), "", ""},
		"two conditions":              {terms(list{in("In", "amd64", "arm64"), in("NotIn", "arm64")}), "", ""},
		"by annotation":               {corev1.PodSpec{}, "amd64,arm64", "amd64,arm64"},
		"both, of which one is right": {corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"}}, "amd64,arm64", "amd64"},
		"preferred": {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: list{in("In", "arm64")}},
			}},
		}}}, "", ""},
	} {
		local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: c.spec}
		if c.note != "" {
			local.Annotations = map[string]string{labels.Architectures: c.note}
		}
		shadow := mustShadowPod(t, local, podspec.Options{})
		if got, ok := shadow.Annotations[labels.Architectures]; got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if shadow.Spec.Pod.NodeSelector != nil || shadow.Spec.Pod.Affinity != nil {
			t.Errorf("%s: the provider gets a selector", name)
		}
	}
}
