// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/metadata"
)

// TestArchitectures: in a cluster of several architectures, a pod runs where the peer's scheduler has been reported that it would, or on each that
// the pod names; whatever a peer writes, it chooses nothing but architectures.
func TestArchitectures(t *testing.T) {
	mixed := []string{"amd64", "arm64"}
	for name, c := range map[string]struct {
		note     string
		before   string // what the ShadowPod remembers
		reported []string
		want     string
		chosen   string
	}{
		"one architecture":                      {"", "", []string{"amd64"}, "", "amd64"},
		"one, and another named":                {"arm64", "", []string{"amd64"}, "", ""},
		"not known":                             {"amd64", "", nil, "", ""},
		"nothing known":                         {"", "", nil, "", ""},
		"none named":                            {"", "", mixed, "amd64", "amd64"},
		"the first one":                         {"amd64", "", mixed, "amd64", ""},
		"the other one":                         {"arm64", "", mixed, "arm64", ""},
		"several":                               {"arm64, amd64,arm64", "", mixed, "amd64,arm64", ""},
		"none of them":                          {"s390x", "", mixed, "s390x", ""},
		"nothing":                               {" , ", "", mixed, "amd64", "amd64"},
		"no value":                              {"amd64,a b", "", mixed, "amd64", "amd64"},
		"too many":                              {strings.Repeat("x,", 9), "", mixed, "amd64", "amd64"},
		"a value that is too long":              {strings.Repeat("x", 64), "", mixed, "amd64", "amd64"},
		"remembered":                            {"", "arm64", mixed, "arm64", "arm64"},
		"remembered, the first one":             {"", "amd64", mixed, "amd64", "amd64"},
		"remembered, and no node is left":       {"", "s390x", mixed, "amd64", "amd64"},
		"remembered, and one other is left":     {"", "arm64", []string{"amd64"}, "", "amd64"},
		"remembered, and it is the only one":    {"", "arm64", []string{"arm64"}, "", "arm64"},
		"remembered, and nothing is known":      {"", "arm64", nil, "arm64", "arm64"},
		"remembered, and others are named":      {"amd64", "arm64", mixed, "amd64", ""},
		"remembered, and what is named is none": {"a b", "arm64", mixed, "arm64", "arm64"},
	} {
		pod := shadowPod(nil)
		pod.Annotations = map[string]string{labels.Architectures: c.note}
		pod.Status.Architecture = c.before
		got, chosen := Architectures(pod, c.reported)
		if strings.Join(got, ",") != c.want || chosen != c.chosen {
			t.Errorf("%s: %v, chosen %q, want %s and %q", name, got, chosen, c.want, c.chosen)
		}
		spec := corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}
		RunOn(&spec, got)
		if (spec.Affinity.NodeAffinity != nil) != (c.want != "") || spec.Affinity.PodAntiAffinity == nil {
			t.Errorf("%s: %+v", name, spec.Affinity)
		}
	}
	// What is remembered is that of the pod, which only this cluster writes.
	chosen := Pod(shadowPod(nil), "rome-id", metadata.Allowed{})
	Choose(chosen, "arm64")
	for note, want := range map[string]string{"": "arm64", "a b": "amd64", strings.Repeat("x", 64): "amd64"} {
		if note != "" {
			Choose(chosen, note)
		}
		remembers := shadowPod(nil)
		remembers.Status.Architecture = "amd64"
		if got := Architecture(remembers, chosen); got != want {
			t.Errorf("remembered is %q, want %q", got, want)
		}
		Choose(chosen, "arm64")
	}
	changed := shadowPod(nil)
	changed.Labels = map[string]string{"app": "changed"}
	for _, recorded := range []bool{true, false} {
		if !recorded { // with very many keys, those that we own are ours to remove
			delete(chosen.Annotations, labels.ShadowPodKeys)
			chosen.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: "us", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + labels.PodArchitecture + `":{}}}}`),
			}}
		}
		patches := Amend(changed, chosen, "rome-id", "us", metadata.Allowed{})
		if slices.ContainsFunc(patches.Rest, func(op Op) bool { return strings.HasSuffix(op.Path, "/virtualkubelet.liqo.io~1architecture") }) ||
			len(patches.Rest) == 0 {
			t.Errorf("a change of the pod, whose keys are recorded: %v, is %+v", recorded, patches.Rest)
		}
	}
	theirs := shadowPod(nil)
	theirs.Annotations = map[string]string{labels.PodArchitecture: "arm64"}
	if pod := Pod(theirs, "rome-id", everything); pod.Annotations[labels.PodArchitecture] != "" {
		t.Error("a peer writes what this cluster has chosen")
	}
	// The annotation is for this cluster, and changes no pod that runs.
	with := shadowPod(nil)
	before := Revision(with)
	with.Annotations = map[string]string{labels.Architectures: "amd64"}
	if Revision(with) != before || len(podAnnotations(with, everything)) != 0 ||
		slices.Contains(metadata.LeftOut(with, metadata.Allowed{}), "annotation "+labels.Architectures) {
		t.Error("the annotation reaches the pod")
	}
}
