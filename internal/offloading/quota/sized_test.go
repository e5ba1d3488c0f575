// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAttackNM2Restart: a peer asks for a larger size of a pod than its grant allows, beside pods that request nothing, and waits for a restart. What
// the others take without requests counts then as before, however the ShadowPod or its pod looks.
func TestAttackNM2Restart(t *testing.T) {
	grant := list("cpu", "1", "memory", "10Gi", "ephemeral-storage", "100Gi", "pods", "100")
	for name, row := range map[string]struct {
		has, asks func(*corev1.PodSpec)
		// added is what others put into the pod.
		added func(*corev1.PodSpec)
		want  string
	}{
		"beyond the grant": {
			has: container(list("cpu", "400m"), nil), asks: container(list("cpu", "900m"), nil),
			want: "900m of cpu in place of 400m, and 900m of 1 granted",
		},
		"within the grant": {has: container(list("cpu", "400m"), nil), asks: container(list("cpu", "500m"), nil)},
		"smaller":          {has: container(list("cpu", "400m"), nil), asks: container(list("cpu", "100m"), nil)},
		"only its labels":  {has: container(list("cpu", "400m"), nil), asks: container(list("cpu", "400m"), nil)},
		"from nothing":     {asks: container(list("cpu", "900m"), nil), want: "900m of cpu in place of 10m"},
		"by limits": {
			has: container(nil, list("cpu", "400m", "memory", "1Gi")), asks: container(nil, list("cpu", "900m", "memory", "1Gi")),
			want: "900m of cpu in place of 400m",
		},
		"hidden behind a container that the provider added": {
			has: container(list("cpu", "400m"), nil), asks: container(list("cpu", "900m"), nil), want: "900m of cpu in place of 400m",
			added: func(spec *corev1.PodSpec) {
				spec.Containers = append(spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: list("cpu", "2")}})
			},
		},
		"of the pod as a whole": {
			has: func(spec *corev1.PodSpec) {
				spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "400m")}
			},
			asks: func(spec *corev1.PodSpec) {
				spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "900m")}
			},
			want: "900m of cpu in place of 400m",
		},
		"beside volumes and storage": {
			has: func(spec *corev1.PodSpec) {
				container(list("cpu", "400m", "ephemeral-storage", "2Gi"), nil)(spec)
				spec.Volumes = []corev1.Volume{memoryVolume("1Gi")}
			},
			asks: func(spec *corev1.PodSpec) {
				container(list("cpu", "450m", "ephemeral-storage", "2Gi"), nil)(spec)
				spec.Volumes = []corev1.Volume{memoryVolume("1Gi")}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(false, testDefaults)
			l.SetGrant("rome-id", slice, grant)
			for i := range 50 {
				l.Set("rome-id", named(fmt.Sprint("idle", i), nil))
			}
			has, asks := named("big", row.has), named("big", row.asks)
			l.SetUnproven("rome-id", asks)
			pod := has.Spec.Pod.DeepCopy()
			testDefaults.Fill(pod)
			if row.added != nil {
				row.added(pod)
			}
			for range 2 {
				l.Prove(asks, pod)
				if problem := l.Grow("rome-id", asks); (problem == "") != (row.want == "") || !strings.Contains(problem, row.want) {
					t.Errorf("%q, want %q", problem, row.want)
				}
				checkUse(t, l)
			}
		})
	}
}
