// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

// TestArchitectures: in a cluster of several architectures, a pod runs where the peer's scheduler has been reported that it would, or on each that the pod names; whatever a peer
// writes, it chooses nothing but architectures.
func TestArchitectures(t *testing.T) {
	mixed := []string{"amd64", "arm64"}
	for name, c := range map[string]struct {
		note     string
		reported []string
		want     string
	}{
		"one architecture":         {"", []string{"amd64"}, ""},
		"one, and another named":   {"arm64", []string{"amd64"}, ""},
		"not known":                {"amd64", nil, ""},
		"none named":               {"", mixed, "amd64"},
		"the first one":            {"amd64", mixed, "amd64"},
		"the other one":            {"arm64", mixed, "arm64"},
		"several":                  {"arm64, amd64,arm64", mixed, "amd64,arm64"},
		"none of them":             {"s390x", mixed, "s390x"},
		"nothing":                  {" , ", mixed, "amd64"},
		"no value":                 {"amd64,a b", mixed, "amd64"},
		"too many":                 {strings.Repeat("x,", 9), mixed, "amd64"},
		"a value that is too long": {strings.Repeat("x", 64), mixed, "amd64"},
	} {
		pod := shadowPod(nil)
		pod.Annotations = map[string]string{labels.Architectures: c.note}
		got := Architectures(pod, c.reported)
		if strings.Join(got, ",") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
		spec := corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}
		RunOn(&spec, got)
		if (spec.Affinity.NodeAffinity != nil) != (c.want != "") || spec.Affinity.PodAntiAffinity == nil {
			t.Errorf("%s: %+v", name, spec.Affinity)
		}
	}
	// The annotation is for this cluster, and changes no pod that runs.
	with := shadowPod(nil)
	before := Revision(with)
	with.Annotations = map[string]string{labels.Architectures: "amd64"}
	if Revision(with) != before || len(podAnnotations(with, everything)) != 0 || slices.Contains(LeftOut(with, Allowed{}), "annotation "+labels.Architectures) {
		t.Error("the annotation reaches the pod")
	}
}
