// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestObservedGeneration: the local pod reports a generation as observed once the remote pod has it, and the
// kubelet there has observed the remote pod as it is.
func TestObservedGeneration(t *testing.T) {
	for _, c := range []struct {
		name                       string
		local, shown               int64 // of the local pod: its generation, and the one that it reports as observed
		has                        string
		remote, observed, readyFor int64 // of the remote pod
		want, ready                int64
	}{
		{"new", 1, 0, "", 1, 1, 1, 1, 1},
		{"its kubelet has not seen it", 1, 0, "", 1, 0, 0, 0, 0},
		{"changed here, not yet there", 2, 1, "", 1, 1, 1, 1, 1},
		{"resized there, and not recorded", 2, 1, "", 2, 2, 2, 1, 1},
		{"recorded, and its kubelet has not seen it", 2, 1, "2", 2, 1, 1, 1, 1},
		{"recorded and seen", 2, 1, "2", 2, 2, 2, 2, 2},
		{"a condition is older", 2, 1, "2", 2, 2, 1, 2, 1},
		{"changed by the provider as well", 2, 2, "2", 9, 9, 9, 2, 2},
		{"the provider has changed it, and its kubelet has not seen that", 2, 2, "2", 9, 8, 8, 2, 1},
		{"the peer lies", 2, 1, "99", 1, 99, 99, 2, 2},
		{"the peer writes nonsense", 2, 1, "-3", 1, 1, -4, 1, 0},
		{"it never goes back", 3, 3, "2", 1, 1, 1, 3, 3},
		{"an older Kubernetes here", 0, 0, "", 1, 1, 1, 0, 0},
		{"an older Kubernetes there", 1, 0, "", 0, 0, 0, 0, 0},
	} {
		local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: c.local}, Status: corev1.PodStatus{ObservedGeneration: c.shown}}
		remote := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Generation: c.remote, Annotations: map[string]string{labels.LocalGeneration: c.has}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: c.observed, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: c.readyFor},
			}},
		}
		status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote})
		if err != nil {
			t.Fatal(err)
		}
		if status.ObservedGeneration != c.want || status.Conditions[0].ObservedGeneration != c.ready {
			t.Errorf("%s: %d, Ready %d; want %d, %d", c.name, status.ObservedGeneration, status.Conditions[0].ObservedGeneration, c.want, c.ready)
		}
		local.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, ObservedGeneration: c.shown}}
		as := podstatus.WithGenerationsOf(local, &status)
		if as.ObservedGeneration != c.shown || as.Conditions[0].ObservedGeneration != c.shown || status.ObservedGeneration != c.want ||
			status.Conditions[0].ObservedGeneration != c.ready {
			t.Errorf("%s: with the generations that are shown: %+v, from %+v", c.name, as, status)
		}
	}
}

// TestLocalGeneration: a ShadowPod has the generation of its pod if that was changed. A user cannot set it.
func TestLocalGeneration(t *testing.T) {
	for generation, want := range map[int64]string{0: "", 1: "", 2: "2", 7: "7"} {
		local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Generation:  generation,
			Annotations: map[string]string{labels.LocalGeneration: "99", labels.DeletionPeriod: "5", "note": "x"},
		}}
		got := mustShadowPod(t, local, podspec.Options{}).Annotations
		if got[labels.LocalGeneration] != want || got[labels.DeletionPeriod] != "" || got["note"] != "x" {
			t.Errorf("generation %d: %v", generation, got)
		}
	}
}
